// Whether fields and parameters go together, so that no row leads out of an array: for arrays of a caller and of files.
// All functions throw std::invalid_argument.
#pragma once

#include <cstdint>
#include <limits>

#include "scorer/row_encoder.hpp"
#include "scorer/row_scorer.hpp"

namespace splinefm {

inline constexpr std::int64_t MAX_FEATURES = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t MAX_NAMES = 1 << 30;

void check(bool valid, const char* message);

// A field of numbers, apart from its windows.
void check_number(const NumberField& field);
void check_window(const BasisWindow& window);
// Names that have features; what is in the table is not looked at.
void check_names(const Names& names);
void check_length(std::int64_t length);
// `sizes` has `levels` rows and `numbers` columns.
void check_cross(const CrossField& field, std::int64_t levels, std::int64_t numbers);
// Parameters of a scorer with `n_between` numbers between fields, for fields whose last feature is before `end`.
void check_params(const RowParams& params, std::int64_t n_between, std::int64_t end);

}  // namespace splinefm
