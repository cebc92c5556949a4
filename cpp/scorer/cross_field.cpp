#include "scorer/cross_field.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "hash_slots.hpp"

namespace splinefm {
namespace {

constexpr std::int64_t MAX_PRODUCTS = std::int64_t{1} << 40;  // products that no row may have

template <class Feature> std::uint64_t mixed(const Feature* combination, std::int64_t parts) {
    std::uint64_t key = 0;
    for (std::int64_t p = 0; p < parts; ++p)
        key = (key ^ static_cast<std::uint64_t>(combination[p])) * 0x9e3779b97f4a7c15u;
    return key ^ (key >> 32);
}

}  // namespace

Cells::Cells(std::vector<std::int32_t> given, std::int64_t parts) : parts(parts) {
    const auto own = std::make_shared<Built>(Built{std::move(given), {}});
    features = own->features;
    const std::size_t n = features.size() / static_cast<std::size_t>(parts);
    own->places.assign(std::bit_ceil(2 * n + 1), -1);
    const std::size_t mask = own->places.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t first = mixed(features.data() + i * static_cast<std::size_t>(parts), parts);
        own->places[search_slots(own->places.data(), mask, first, [](std::int32_t) { return false; })] =
            static_cast<std::int32_t>(i);
    }
    places = own->places;
    built = own;
}

std::int64_t Cells::find(const std::int64_t* combination) const {
    return places[search_slots(places.data(), places.size() - 1, mixed(combination, parts), [&](std::int32_t at) {
        return std::equal(combination, combination + parts, features.data() + at * parts);
    })];
}

std::int64_t Buckets::find(const std::int64_t* combination) const {
    std::int64_t total = 0;
    for (const std::int64_t multiplier : multipliers) total = (total + (*combination++ + 1) * multiplier) % prime;
    return total % n;
}

std::int64_t CrossField::n_numbers() const {
    return std::count_if(parts.begin(), parts.end(), [](const CrossPart& part) { return part.index() == 0; });
}

std::int64_t CrossField::n_levels() const {
    for (const CrossPart& part : parts)
        if (const NumberField* const number = std::get_if<NumberField>(&part))
            return static_cast<std::int64_t>(number->windows.size());
    return 1;
}

std::int64_t CrossField::block() const {
    const std::int64_t n = n_numbers();
    std::int64_t total = 0;
    for (std::int64_t level = 0; level < n_levels(); ++level) {
        std::int64_t product = 1;
        for (std::int64_t i = 0; i < n; ++i) product *= sizes[level * n + i];
        total += product;
    }
    return total;
}

std::int64_t CrossField::n_terms() const {
    std::int64_t total = 0;
    for (std::int64_t level = 0; level < n_levels(); ++level) {
        std::int64_t product = 1;
        for (const CrossPart& part : parts)
            if (const NumberField* const number = std::get_if<NumberField>(&part); number && product < MAX_PRODUCTS)
                product *= number->windows[level].functions;
        total += product;
    }
    return total;
}

std::int64_t CrossField::max_terms() const {
    std::int64_t widest = 0;
    for (const CrossPart& part : parts)
        if (const NumberField* const number = std::get_if<NumberField>(&part))
            for (const BasisWindow& window : number->windows) widest = std::max<std::int64_t>(widest, window.functions);
    return n_terms() + widest;
}

std::int64_t CrossField::find(const std::int64_t* combination) const {
    if (const Cells* const kept = std::get_if<Cells>(&cells)) return kept->find(combination);
    if (const Buckets* const buckets = std::get_if<Buckets>(&cells)) return buckets->find(combination);
    return 0;
}

void CrossField::add_terms(std::int64_t cell, const double* u, Terms& terms) const {
    std::int64_t base = first + cell * block();
    const std::int64_t* size = sizes.data();
    for (std::int64_t level = 0; level < n_levels(); ++level) {
        const std::int64_t begin = terms.n_terms;
        std::int64_t product = 1;
        const double* x = u;
        terms.add(0, 1.0f);
        for (const CrossPart& part : parts) {
            const NumberField* const number = std::get_if<NumberField>(&part);
            if (!number) continue;
            const BasisWindow& window = number->windows[level];
            const std::int64_t count = terms.n_terms - begin, functions = window.functions;
            // The functions go behind the products, which are then made from the last to the first.
            const std::int64_t behind = terms.n_terms = begin + count * functions;
            window.add_terms(*x++, 0, terms);
            for (std::int64_t t = count; t-- > 0;) {
                const std::int64_t feature = terms.features[begin + t] * *size;
                const float weight = terms.weights[begin + t];
                for (std::int64_t i = functions; i-- > 0;) {
                    terms.features[begin + t * functions + i] =
                        static_cast<std::int32_t>(feature + terms.features[behind + i]);
                    terms.weights[begin + t * functions + i] = weight * terms.weights[behind + i];
                }
            }
            terms.n_terms = behind;
            product *= *size++;
        }
        for (std::int64_t t = begin; t < terms.n_terms; ++t) terms.features[t] += static_cast<std::int32_t>(base);
        base += product;
    }
}

}  // namespace splinefm
