#include "c/reader.hpp"

#include <cmath>
#include <limits>

#include "scorer/blake2b.hpp"

namespace splinefm::c {
namespace {

constexpr double NONE = std::numeric_limits<double>::quiet_NaN(), EXACT = 9007199254740992.0, DAY = 86400.0;
constexpr std::size_t SHOWN = 60;  // bytes of a text in a message

// The remainder of a division that has the sign of the divisor, as NumPy's.
double modulo(double x, double y) {
    const double rest = std::fmod(x, y);
    return rest != 0.0 && (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}

// Days since the last 1st of March; see `_days_since_march` in splinefm.encode.tables.dates.
double days_since_march(double days) {
    const double of_era = modulo(days + 719468.0, 146097.0);
    const double leaps = std::floor(of_era / 1460.0) - std::floor(of_era / 36524.0) + std::floor(of_era / 146096.0);
    const double year = std::floor((of_era - leaps) / 365.0);
    return of_era - (365.0 * year + std::floor(year / 4.0) - std::floor(year / 100.0));
}

double take_part(double seconds, Part part) {
    if (part == Part::none || part == Part::trend) return seconds;
    const double days = std::floor(seconds / DAY);
    if (part == Part::hour) return (seconds - days * DAY) / 3600.0;
    if (part == Part::weekday) return modulo(days + 3.0, 7.0);
    return modulo(days_since_march(days) + 60.0, 366.0) + 1.0;
}

const char* kind_name(std::int32_t kind) {
    switch (kind) {
    case SFM_NUMBER: return "a number";
    case SFM_INTEGER: return "an integer";
    case SFM_BOOLEAN: return "a boolean";
    case SFM_TEXT: return "a text";
    case SFM_LIST: return "a list";
    case SFM_MISSING: return "a missing value";
    }
    return "no value";
}

std::string_view text_of(const sfm_value& value) {
    return {value.size ? value.of.text : "", static_cast<std::size_t>(value.size)};
}

// A text for a message, without half a character at the end.
std::string shown(std::string_view text) {
    if (!is_utf8(text)) return "that is not UTF-8";
    if (text.size() <= SHOWN) return "'" + std::string(text) + "'";
    std::size_t n = SHOWN;
    while (n && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
    return "'" + std::string(text.substr(0, n)) + "…'";
}

}  // namespace

void Reader::wrong(int v, const std::string& why) const {
    throw Problem(SFM_ERROR_VALUE, "column '" + plan.columns[static_cast<std::size_t>(rule(v).column)] + "' " + why);
}

void Reader::refuse_value(int v) const {
    const sfm_value& given = row[rule(v).column];
    if (given.kind == SFM_TEXT || given.kind == SFM_LIST)
        wrong(v, "has " + std::string(kind_name(given.kind)) + " whose address is NULL");
    wrong(v, given.kind == SFM_ABSENT
                 ? "has no value; a missing value is SFM_MISSING"
                 : "has a value of the unknown kind " + std::to_string(given.kind) + "; see sfm_value");
}

double Reader::other_number(int v) const {
    const sfm_value& given = value(v);
    double x = NONE;
    switch (given.kind) {
    case SFM_MISSING: break;
    case SFM_NUMBER: x = given.of.number; break;
    case SFM_INTEGER:
    case SFM_BOOLEAN: x = static_cast<double>(given.of.integer); break;
    default: wrong(v, std::string("takes numbers, got ") + kind_name(given.kind) + "; convert it");
    }
    return take_part(x, rule(v).part);
}

void Reader::refuse(int v, double x) const {
    if (std::isnan(x)) wrong(v, "takes no missing values");
    const Limits& limits = rule(v).limits;
    if (limits.exclude(x) && std::isfinite(x))
        wrong(v, "has the number " + std::to_string(x) + ", beyond its range in training, " +
                     std::to_string(limits.low) + " to " + std::to_string(limits.high));
    wrong(v, "does not take the number " + std::to_string(x));
}

void Reader::refuse_offset(int v, double x) const {
    const bool is_exposure = plan.encoder.offset().kind == ScoreOffset::logarithm;
    wrong(v, std::string(is_exposure ? "is an exposure, which must be a finite number above 0"
                                     : "is an offset, which must be a finite number") +
                 " and not too large, got " + std::to_string(x));
}

std::int64_t Reader::missing(int v, const Names& names) const {
    if (names.missing == ASK) wrong(v, "takes no missing values");
    return names.missing;
}

std::int64_t Reader::find_unknown(int v, const Names& names, std::string_view name) const {
    const ValueRule& known = rule(v);
    if (known.spelled == Spelled::dates && is_foreign_date(name))
        wrong(v, "has the date " + shown(name) + "; write it like 2024-05-28, or 2024-05-28 13:30:00");
    char made[40];
    if (name.data() == buffer.data()) {  // the name of a number
        name = {made, name.copy(made, sizeof made)};
    }
    const std::string_view found = canonical(name, known.spelled, buffer);
    const std::int32_t at =
        names.table.find({found.data(), static_cast<std::int64_t>(found.size()), found.data() + found.size()});
    if (at >= 0) return names.first + at;
    switch (known.unseen) {
    case Unseen::rare: return known.first_unseen;
    case Unseen::neutral: return NO_FEATURE;
    case Unseen::hash:
        return known.first_unseen +
               static_cast<std::int64_t>(blake2b_8(found) % static_cast<std::uint64_t>(known.buckets));
    case Unseen::error: break;
    }
    wrong(v, "has the unseen category " + shown(name));
}

std::int64_t Reader::find(int v, const Names& names, std::string_view name) const {
    const std::int64_t feature = names.find(name);
    return feature != ASK ? feature : find_unknown(v, names, name);
}

std::int64_t Reader::find_number(int v, const Names& names, double x) const {
    if (x == std::trunc(x) && std::abs(x) < EXACT) return find(v, names, Digits(static_cast<std::int64_t>(x)).text());
    return find(v, names, number_name(x, buffer));
}

std::int64_t Reader::category(int v, const Names& names, std::int64_t) const {
    const sfm_value& given = value(v);
    switch (given.kind) {
    case SFM_TEXT: return find(v, names, text_of(given));
    case SFM_INTEGER: return find(v, names, Digits(given.of.integer).text());
    case SFM_BOOLEAN: return find(v, names, given.of.integer ? "true" : "false");
    case SFM_NUMBER:
        if (!std::isnan(given.of.number)) return find_number(v, names, given.of.number);
        [[fallthrough]];
    case SFM_MISSING: return missing(v, names);
    }
    wrong(v, std::string("takes one category, got ") + kind_name(given.kind));
}

// Adds the feature of an element, if it has one; false for elements that are missing or empty, which are none.
bool Reader::add_element(int v, const ListField& field, const sfm_value& element, Terms& terms) const {
    std::int64_t feature = NO_FEATURE;
    switch (element.kind) {
    case SFM_MISSING: return false;
    case SFM_TEXT: {
        if (element.size && !element.of.text) wrong(v, "has a text whose address is NULL");
        const std::string_view text = rule(v).has_separator ? trimmed(text_of(element)) : text_of(element);
        if (text.empty()) return false;
        feature = find(v, field.names, text);
        break;
    }
    case SFM_INTEGER: feature = find(v, field.names, Digits(element.of.integer).text()); break;
    case SFM_BOOLEAN: feature = find(v, field.names, element.of.integer ? "true" : "false"); break;
    case SFM_NUMBER:
        if (std::isnan(element.of.number)) return false;
        feature = find_number(v, field.names, element.of.number);
        break;
    default: wrong(v, std::string("has a list with ") + kind_name(element.kind) + "; elements are texts or numbers");
    }
    if (feature >= 0) terms.add(feature, 1.0f);
    return true;
}

// Cuts a text at the separator; how many elements there are.
std::int64_t Reader::add_parts(int v, const ListField& field, std::string_view text, Terms& terms) const {
    const std::string& separator = rule(v).separator;
    std::int64_t count = 0;
    for (bool more = true; more && count < field.length;) {
        const std::size_t end = text.find(separator);
        more = end != std::string_view::npos;
        count += add_element(v, field, sfm_text(text.data(), more ? end : text.size()), terms);
        if (more) text.remove_prefix(end + separator.size());
    }
    return count;
}

void Reader::list(int v, const ListField& field, Terms& terms) const {
    const sfm_value& given = value(v);
    const std::int64_t begin = terms.n_terms;
    std::int64_t count = 0;
    if (given.kind == SFM_MISSING || (given.kind == SFM_NUMBER && std::isnan(given.of.number))) {
        terms.add(missing(v, field.names), 1.0f);
        return;
    }
    if (given.kind == SFM_TEXT && rule(v).has_separator) {
        count = add_parts(v, field, text_of(given), terms);
    } else if (given.kind == SFM_LIST) {
        std::int32_t kind = SFM_MISSING;
        for (std::uint64_t i = 0; i < given.size; ++i) {
            const sfm_value& element = given.of.list[i];
            const std::int32_t own = element.kind == SFM_INTEGER ? static_cast<std::int32_t>(SFM_NUMBER) : element.kind;
            if (own != SFM_MISSING && kind != SFM_MISSING && own != kind)
                wrong(v, "has a list of different kinds of values; make them all texts");
            if (own != SFM_MISSING) kind = own;
            if (count < field.length) count += add_element(v, field, element, terms);
        }
    } else {
        wrong(v, std::string("takes lists, got ") + kind_name(given.kind));
    }
    if (field.averages)
        for (std::int64_t t = begin; t < terms.n_terms; ++t)
            terms.weights[static_cast<std::size_t>(t)] = static_cast<float>(1.0 / static_cast<double>(count));
}

void Reader::given(int v, const GivenField&, Terms&) const { wrong(v, "is not compiled"); }

}  // namespace splinefm::c
