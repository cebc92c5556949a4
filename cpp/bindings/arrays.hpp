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

// Arrays that are returned.
template <class T> using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

// The numbers of an array, aligned to their size.
template <class Source> auto* numbers(const Source& array, const char* name) {
    auto* data = array.data();
    if (array.size() && reinterpret_cast<std::uintptr_t>(data) % sizeof(*data))
        throw nb::value_error((std::string(name) + " must be aligned in memory; copy it").c_str());
    return data;
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
