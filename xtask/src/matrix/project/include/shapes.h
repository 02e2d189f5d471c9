#pragma once
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape() {}
    virtual double area() const = 0;
};

std::vector<Shape *> shapes();
std::string name_of(const Shape &shape);
