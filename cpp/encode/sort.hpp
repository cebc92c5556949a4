// Sorting integers by their digits: the time per number is the same for all n, and no branch depends on the numbers.
#pragma once

#include <cstdint>

namespace splinefm {

// Sort n integers, less than 2³² of them; `spare` has room for as many.
void sort_integers(std::int64_t* x, std::int64_t n, std::int64_t* spare);

}  // namespace splinefm
