// Elementary functions for transforms, from the machine's C library, but for asinh.
//
// NumPy has other code for the same functions on processors with AVX-512, which rounds some values differently, as do
// versions of glibc for asinh. A value on the border of two bins, u = T(z) = cut, would then fall into one bin on the
// machine where a model was fitted, and into the other where it is used.
#pragma once

#include <cstdint>
#include <string_view>

namespace splinefm {

// out[i] = function(x[i]); throws std::invalid_argument for a function that is not among log, log1p, exp, expm1, asinh
// and atan.
void elementary(std::string_view function, const double* x, std::int64_t n, double* out);

// out[i] = x[i] to the power of `exponent`.
void power(const double* x, std::int64_t n, double exponent, double* out);

}  // namespace splinefm
