// NumPy arrays at the border, checked once, before a loop sees a pointer.
//
// nanobind refuses another dtype, number of dimensions, device or stride (arguments are `noconvert`, nothing is copied)
// with a TypeError. This file checks alignment, which nanobind does not. What depends on the function (lengths, ranges
// of indices) is checked in its binding; messages name the argument.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace splinefm::bindings {

namespace nb = nanobind;

// Arrays that are read, of one and two dimensions, and arrays that are written to.
template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A column and some columns of a larger array that are written to: rows may lie apart.
template <class T> using OutColumn = nb::ndarray<T, nb::ndim<1>, nb::device::cpu>;
template <class T> using OutRows = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

// Arrays that are returned.
template <class T> using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

// The numbers of an array, aligned to their size.
template <class Source> auto* numbers(const Source& array, const char* name) {
    auto* data = array.data();
    if (array.size() && reinterpret_cast<std::uintptr_t>(data) % sizeof(*data))
        throw nb::value_error((std::string(name) + " must be aligned in memory; copy it").c_str());
    return data;
}

// The first of n numbers that lie in order, apart or not.
template <class T> T* column(const OutColumn<T>& array, std::int64_t n, const char* name) {
    if (static_cast<std::int64_t>(array.shape(0)) != n || (n > 1 && array.stride(0) < 1))
        throw nb::value_error((std::string(name) + " must have a number per row, in order").c_str());
    return numbers(array, name);
}

// The first of n rows in order, each of `width` numbers side by side.
template <class T> T* rows(const OutRows<T>& array, std::int64_t n, std::int64_t width, const char* name) {
    const bool apart = n > 1 && array.stride(0) < width, strided = width > 1 && array.stride(1) != 1;
    if (static_cast<std::int64_t>(array.shape(0)) != n || static_cast<std::int64_t>(array.shape(1)) != width ||
        (n > 0 && (apart || strided)))
        throw nb::value_error(
            (std::string(name) + " must have " + std::to_string(width) + " numbers side by side per row, in order")
                .c_str());
    return numbers(array, name);
}

// A new array of n numbers and a pointer to them; not initialized.
template <class T> std::pair<T*, Array<T>> new_array(std::size_t n) {
    T* const made = new T[n];
    const nb::capsule owner(made, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return {made, Array<T>(made, {n}, owner)};
}

// An array that owns the numbers of a vector.
template <class T> Array<T> give(std::vector<T>&& numbers) {
    auto* kept = new std::vector<T>(std::move(numbers));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Array<T>(kept->data(), {kept->size()}, owner);
}

}  // namespace splinefm::bindings
