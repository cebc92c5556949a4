#include "scorer/row_encoder.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace splinefm {
namespace {

std::int64_t end_feature(const Names& names) {
    return std::max({names.first + names.size, names.unseen + 1, names.missing + 1});
}

struct MostTerms {
    std::int64_t operator()(const NumberField& field) const { return field.max_terms(); }
    std::int64_t operator()(const CategoryField&) const { return 1; }
    std::int64_t operator()(const ListField& field) const { return std::max<std::int64_t>(field.length, 1); }
    std::int64_t operator()(const GivenField& field) const { return field.length; }
    std::int64_t operator()(const CrossField& field) const { return field.max_terms(); }
};

struct EndFeature {
    std::int64_t operator()(const NumberField& field) const { return field.end_feature(); }
    std::int64_t operator()(const CategoryField& field) const { return end_feature(field.names); }
    std::int64_t operator()(const ListField& field) const { return end_feature(field.names); }
    std::int64_t operator()(const GivenField&) const { return 0; }
    std::int64_t operator()(const CrossField& field) const { return field.end_feature(); }
};

struct CountValues {
    std::int64_t operator()(const GivenField& field) const { return field.n_values; }
    std::int64_t operator()(const CrossField& field) const { return static_cast<std::int64_t>(field.parts.size()); }
    template <class Field> std::int64_t operator()(const Field&) const { return 1; }
};

}  // namespace

void RowEncoder::add(RowField field) {
    n_terms += std::visit(MostTerms{}, field);
    n_features = std::max(n_features, std::visit(EndFeature{}, field));
    if (std::holds_alternative<CategoryField>(field) || std::holds_alternative<CrossField>(field))
        category_fields.push_back(n_fields());
    value_ptr.push_back(n_values() + static_cast<int>(std::visit(CountValues{}, field)));
    fields.push_back(std::move(field));
}

bool RowEncoder::add(BasisWindow window) {
    NumberField* const field = fields.empty() ? nullptr : std::get_if<NumberField>(&fields.back());
    if (!field) return false;
    n_terms -= field->max_terms();
    field->windows.push_back(std::move(window));
    n_terms += field->max_terms();
    n_features = std::max(n_features, field->end_feature());
    return true;
}

Digits::Digits(std::int64_t number)
    : size(static_cast<std::size_t>(std::to_chars(buffer, buffer + sizeof buffer, number).ptr - buffer)) {}

}  // namespace splinefm
