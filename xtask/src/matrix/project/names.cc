#include "shapes.h"
#include <typeinfo>

std::string name_of(const Shape &shape)
{
    return std::string(typeid(shape).name()) + "/" + std::to_string(static_cast<int>(shape.area()));
}
