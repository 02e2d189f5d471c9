#include "shapes.h"

struct Square : Shape {
    double side;
    explicit Square(double side) : side(side) {}
    double area() const override { return side * side; }
};

std::vector<Shape *> shapes()
{
    std::vector<Shape *> all;
    for (int side = 1; side < 5; side++)
        all.push_back(new Square(side));
    return all;
}
