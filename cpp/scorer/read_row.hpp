// A row of values -> terms, whatever the values are: the reader knows them.
//
// Values are numbered through, see RowEncoder. A reader has
//     text(v)                       a value that is text, or null; others need not be known
//     number(v)                     the number of a value, NaN if it is missing
//     category(v, names, end)       the feature of a value, below `end`, or NO_FEATURE
//     list(v, field, terms)         adds the terms of a list
//     given(v, field, terms)        adds terms that are given
//     refuse(v, x)                  throws: a field does not take a number
//     refuse_offset(v, x)           throws: a number cannot be an offset
//     n_features()                  features of the model
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "scorer/row_encoder.hpp"
#include "scorer/row_scorer.hpp"

namespace splinefm {

// The cell of the names of a cross, or -1.
template <class Reader> std::int64_t read_cell(const Reader& reader, int v, const CrossField& field) {
    std::array<std::int64_t, CrossField::MAX_PARTS> features{};
    std::size_t count = 0;
    bool known = true;
    for (const CrossPart& part : field.parts) {
        if (const CategoryField* const category = std::get_if<CategoryField>(&part)) {
            features[count] = reader.category(v, category->names, std::numeric_limits<std::int32_t>::max());
            known &= features[count++] >= 0;
        }
        ++v;
    }
    return known ? field.find(features.data()) : NO_FEATURE;
}

template <class Reader>
void read_cross(const Reader& reader, int v, const CrossField& field, std::int64_t cell, Terms& terms) {
    std::array<double, CrossField::MAX_PARTS> u{};
    std::size_t count = 0;
    bool ordinary = true;
    for (const CrossPart& part : field.parts) {
        if (const NumberField* const number = std::get_if<NumberField>(&part)) {
            const double x = reader.number(v);
            const std::int64_t token = number->token(x);
            if (token == NumberField::REFUSED) reader.refuse(v, x);
            ordinary &= token == NumberField::ORDINARY;
            u[count++] = ordinary ? number->position(x) : 0.0;
        }
        ++v;
    }
    if (ordinary && cell >= 0) field.add_terms(cell, u.data(), terms);
}

// Adds the terms of a field; whether each is a unit of its own.
template <class Reader> struct AddTerms {
    const Reader& reader;
    int v;
    std::int64_t found;
    Terms& terms;

    bool operator()(const NumberField& field) const {
        const double x = reader.number(v);
        if (!field.add_terms(x, terms)) reader.refuse(v, x);
        return field.apart;
    }
    bool operator()(const CategoryField&) const {
        if (found >= 0) terms.add(found, 1.0f);
        return false;
    }
    bool operator()(const ListField& field) const {
        reader.list(v, field, terms);
        return field.apart;
    }
    bool operator()(const GivenField& field) const {
        reader.given(v, field, terms);
        return field.apart;
    }
    bool operator()(const CrossField& field) const {
        read_cross(reader, v, field, found, terms);
        return false;
    }
};

// The feature of a field of one name, or the cell of a cross; its parameters are asked for.
template <class Reader>
std::int64_t look_up(const Reader& reader, const RowEncoder& encoder, int f, const RowScorer* scorer) {
    const int v = encoder.first_value(f);
    std::int64_t found, feature;
    if (const CrossField* const cross = std::get_if<CrossField>(&encoder.field(f))) {
        found = read_cell(reader, v, *cross);
        feature = found < 0 || cross->n_numbers() ? NO_FEATURE : cross->first + found;
    } else {
        feature = found = reader.category(v, std::get_if<CategoryField>(&encoder.field(f))->names, reader.n_features());
    }
    if (scorer && feature >= 0) scorer->fetch(feature);
    return found;
}

// Adds the terms of field f, given what was looked up, and closes its units.
template <class Reader>
void read_field(const Reader& reader, const RowEncoder& encoder, int f, std::int64_t found, Terms& terms) {
    const std::int64_t begin = terms.n_terms;
    const AddTerms<Reader> add{reader, encoder.first_value(f), found, terms};
    terms.close(f, begin, std::visit(add, encoder.field(f)));
}

// Sets the offset of a row, if there is one.
template <class Reader> void read_offset(const Reader& reader, const RowEncoder& encoder, Terms& terms) {
    if (!encoder.has_offset()) return;
    const double x = reader.number(encoder.offset_value());
    if (!encoder.offset().convert(x, terms.offset)) reader.refuse_offset(encoder.offset_value(), x);
    terms.has_offset = true;
}

// Ask memory for what searches of names will read, for all columns at once: tables of many names lie beyond the caches,
// and one search after the other would wait for a slot, an entry and a text each.
template <class Reader>
void fetch_names(const Reader& reader, const RowEncoder& encoder, const RowScorer* scorer, std::int64_t* found) {
    const auto each = [&](auto step) {
        for (const int f : encoder.categories())
            if (const CategoryField* const field = std::get_if<CategoryField>(&encoder.field(f)))
                found[f] = step(f, field->names);
    };
    each([&](int f, const Names& names) {
        const std::string_view name = reader.text(encoder.first_value(f));
        return name.data() ? static_cast<std::int64_t>(names.table.fetch_slot(Names::as_string(name))) : NO_FEATURE;
    });
    each([&](int f, const Names& names) -> std::int64_t {
        if (found[f] < 0) return NO_FEATURE;
        const std::int32_t at = names.table.fetch_entry(static_cast<std::uint64_t>(found[f]));
        if (scorer && at >= 0) scorer->fetch(names.first + at);  // most often it is the one
        return at;
    });
    each([&](int f, const Names& names) {
        if (found[f] >= 0) names.table.fetch_text(static_cast<std::int32_t>(found[f]));
        return found[f];
    });
}

// The same as `look_up`, given what `fetch_names` found: most often the name that is asked for.
template <class Reader> std::int64_t find_fetched(const Reader& reader, const RowEncoder& encoder, int f,
                                                  const RowScorer* scorer, std::int64_t fetched) {
    const CategoryField* const field = std::get_if<CategoryField>(&encoder.field(f));
    if (field && fetched >= 0) {
        const std::string_view name = reader.text(encoder.first_value(f));
        if (field->names.table.is_at(static_cast<std::int32_t>(fetched), Names::as_string(name)))
            return field->names.first + fetched;
    }
    return look_up(reader, encoder, f, scorer);
}

// Write the terms of a row; `found` has a number per field. A scorer, if there is one, asks for the parameters of
// categories while numbers are read.
template <class Reader> void read_row(const Reader& reader, const RowEncoder& encoder, const RowScorer* scorer,
                                      std::int64_t* found, Terms& terms) {
    fetch_names(reader, encoder, scorer, found);
    for (const int f : encoder.categories()) found[f] = find_fetched(reader, encoder, f, scorer, found[f]);
    terms.clear();
    for (int f = 0; f < encoder.n_fields(); ++f) read_field(reader, encoder, f, found[f], terms);
    read_offset(reader, encoder, terms);
}

}  // namespace splinefm
