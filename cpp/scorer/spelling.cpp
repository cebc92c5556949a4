#include "scorer/spelling.hpp"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace splinefm {
namespace {

constexpr double EXACT = 9007199254740992.0;  // 2^53: floats below it that are integers are spelled like integers

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The white space of regular expressions.
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r'; }

std::string_view without_spaces(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

std::size_t count_digits(std::string_view text) {
    std::size_t n = 0;
    while (n < text.size() && is_digit(text[n])) ++n;
    return n;
}

bool equal_ignoring_case(std::string_view text, std::string_view lower) {
    if (text.size() != lower.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
    }
    return true;
}

// [+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? with white space around it.
struct Number {
    bool found = false, negative = false, whole = false;
    std::string_view text, digits;  // without a sign; the digits before the point

    explicit Number(std::string_view given) {
        text = without_spaces(given);
        if (!text.empty() && (text.front() == '+' || text.front() == '-')) {
            negative = text.front() == '-';
            text.remove_prefix(1);
        }
        std::string_view rest = text;
        digits = rest.substr(0, count_digits(rest));
        rest.remove_prefix(digits.size());
        std::string_view decimals;
        if (!rest.empty() && rest.front() == '.') {
            decimals = rest.substr(1, count_digits(rest.substr(1)));
            rest.remove_prefix(1 + decimals.size());
        }
        if (digits.empty() && decimals.empty()) return;
        whole = rest.empty() && !digits.empty() && decimals.find_first_not_of('0') == std::string_view::npos;
        if (!rest.empty()) {
            if (rest.front() != 'e' && rest.front() != 'E') return;
            rest.remove_prefix(1);
            if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) rest.remove_prefix(1);
            if (rest.empty() || count_digits(rest) != rest.size()) return;
        }
        found = true;
    }
};

// The value of a number that is written as text; a number beyond all floats is infinite.
double value_of(const Number& number) {
    double x = 0.0;
    const char* const end = number.text.data() + number.text.size();
    const std::from_chars_result read = std::from_chars(number.text.data(), end, x);
    if (read.ec == std::errc::result_out_of_range) {
        // Too large or too small: the sign of the exponent tells, or without one the digits before the point.
        const std::size_t at = number.text.find_first_of("eE");
        const bool small = at != std::string_view::npos ? number.text[at + 1] == '-' : number.digits.empty();
        x = small ? 0.0 : HUGE_VAL;
    }
    return number.negative ? -x : x;
}

std::string_view canonical_number(std::string_view name, std::string& buffer) {
    const Number number(name);
    if (!number.found) return name;
    if (!number.whole) return number_name(value_of(number), buffer);
    std::string_view digits = number.digits;
    while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
    if (!number.negative || digits == "0") return digits;
    buffer.assign(1, '-').append(digits);
    return buffer;
}

// A date or a time: \d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?\s?(Z|[+-]\d{2}(:?\d{2})?)?)?
class Date {
public:
    explicit Date(std::string_view text) : rest(text) {
        if (!(number(4) && sign('-') && number(2) && sign('-') && number(2))) return;
        plain = rest.empty();
        if ((found = rest.empty())) return;
        const bool blank = rest.front() == ' ';
        if (!sign(' ') && !sign('T')) return;
        const std::string_view clock = rest;
        if (!(number(2) && sign(':') && number(2))) return;
        bool seconds = false, ends_in_zero = false;
        if (sign(':')) {
            if (!number(2)) return;
            seconds = true;
            if (sign('.')) {
                const std::size_t n = count_digits(rest);
                if (!n) return;
                ends_in_zero = rest[n - 1] == '0' || n > 6;
                rest.remove_prefix(n);
            }
        }
        found = rest.empty();
        plain = found && blank && seconds && !ends_in_zero && clock != "00:00:00";
        if (found) return;
        if (is_space(rest.front())) rest.remove_prefix(1);
        found = rest.empty() || sign('Z') || zone();
        found &= rest.empty();
    }

    bool found = false, plain = false;  // whether it is one, and whether it is written as here

private:
    bool number(std::size_t n) {
        if (count_digits(rest.substr(0, n)) < n) return false;
        rest.remove_prefix(n);
        return true;
    }
    bool sign(char c) {
        if (rest.empty() || rest.front() != c) return false;
        rest.remove_prefix(1);
        return true;
    }
    bool zone() {
        if (!(sign('+') || sign('-')) || !number(2)) return false;
        if (rest.empty()) return true;
        sign(':');
        return number(2);
    }

    std::string_view rest;
};

// The length of a white space character of Unicode at the beginning of UTF-8, or 0.
std::size_t space_at(std::string_view text) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const unsigned a = byte(0), b = byte(1), c = byte(2);
    if ((a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x20)) return 1;
    if (a == 0xc2 && (b == 0x85 || b == 0xa0)) return 2;  // next line, no-break space
    if (a == 0xe1 && b == 0x9a && c == 0x80) return 3;    // Ogham
    if (a == 0xe2 && b == 0x80 && ((c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf)) return 3;
    if (a == 0xe2 && b == 0x81 && c == 0x9f) return 3;   // of mathematics
    return a == 0xe3 && b == 0x80 && c == 0x80 ? 3 : 0;  // ideographic
}

}  // namespace

bool is_foreign_date(std::string_view name) {
    const Date date(trimmed(name));
    return date.found && !(date.plain && trimmed(name).size() == name.size());
}

std::string_view canonical(std::string_view name, Spelled spelled, std::string& buffer) {
    if (spelled == Spelled::text || spelled == Spelled::dates) return name;
    const std::string_view spaced = without_spaces(name);
    const bool is_true = equal_ignoring_case(spaced, "true"), is_false = equal_ignoring_case(spaced, "false");
    const std::string_view found = is_true || is_false ? name : canonical_number(name, buffer);
    if (spelled == Spelled::numbers) return is_true ? "1" : is_false ? "0" : found;
    return is_true || found == "1" ? "true" : is_false || found == "0" ? "false" : found;
}

std::string_view number_name(double x, std::string& buffer) {
    char text[32];
    if (x == std::floor(x) && std::abs(x) < EXACT) {
        const auto end = std::to_chars(text, text + sizeof text, static_cast<std::int64_t>(x)).ptr;
        return buffer.assign(text, end);
    }
    if (!std::isfinite(x)) return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
    // d.ddde±xx with the fewest digits that tell the number apart
    const auto end = std::to_chars(text, text + sizeof text, std::abs(x), std::chars_format::scientific).ptr;
    const std::string_view all(text, static_cast<std::size_t>(end - text));
    const std::size_t e = all.find('e');
    int exponent = 0;
    std::from_chars(all.data() + e + (all[e + 1] == '+' ? 2 : 1), end, exponent);
    buffer.assign(x < 0 ? "-" : "");
    if (exponent < -6 || exponent >= 10) {
        buffer.append(all.substr(0, e)).append(exponent < 0 ? "e" : "e+");
        char digits[8];
        return buffer.append(digits, std::to_chars(digits, digits + sizeof digits, exponent).ptr);
    }
    if (exponent < 0) {
        buffer.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(1, all[0]);
        return e > 2 ? buffer.append(all.substr(2, e - 2)) : buffer;
    }
    // Not an integer: there are digits behind the point.
    const auto n = static_cast<std::size_t>(exponent);
    buffer.append(1, all[0]).append(all.substr(2, n)).append(1, '.').append(all.substr(2 + n, e - 2 - n));
    return buffer;
}

bool is_utf8(std::string_view text) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    for (std::size_t at = 0; at < text.size();) {
        for (std::uint64_t word; at + 8 <= text.size(); at += 8) {  // eight letters of ASCII at a time
            std::memcpy(&word, text.data() + at, sizeof word);
            if (word & 0x8080808080808080u) break;
        }
        const unsigned first = byte(at);
        if (first < 0x80) {
            ++at;
            continue;
        }
        const std::size_t more = first < 0xC2 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : 0;
        const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (!more || byte(at + 1) < least || byte(at + 1) > most) return false;
        for (std::size_t i = 2; i <= more; ++i)
            if ((byte(at + i) & 0xC0) != 0x80) return false;
        at += 1 + more;
    }
    return true;
}

std::string_view trimmed(std::string_view text) {
    while (const std::size_t n = space_at(text)) text.remove_prefix(n);
    for (bool again = true; again;) {
        again = false;
        for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
            if (space_at(text.substr(text.size() - n)) != n) continue;
            text.remove_suffix(n);
            again = true;
            break;
        }
    }
    return text;
}

}  // namespace splinefm
