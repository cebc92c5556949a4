#include "scorer/json_rows.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "scorer/spelling.hpp"

namespace splinefm {
namespace {

constexpr std::uint64_t ONES = 0x0101010101010101u, TOPS = 0x8080808080808080u;
constexpr std::ptrdiff_t INT64_DIGITS = 18;   // integers with this many digits are below 2^63
constexpr std::ptrdiff_t LONG_DIGITS = 1000;  // a decoder may refuse longer ones

// Bytes that end the plain part of a string, by their top bits: quotes, backslashes, control characters, and those
// beyond ASCII. Right up to the first of them.
std::uint64_t unusual(std::uint64_t word) {
    const auto zeros = [](std::uint64_t x) { return (x - ONES) & ~x; };
    return (zeros(word ^ ONES * '"') | zeros(word ^ ONES * '\\') | ((word - ONES * 0x20) & ~word) | word) & TOPS;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr std::string_view ESCAPES = "\"\\/bfnrt", ESCAPED = "\"\\/\b\f\n\r\t";

// The number that four hexadecimal digits are, or -1.
std::int32_t code_unit(std::string_view digits) {
    std::int32_t code = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        const char c = i < digits.size() ? digits[i] : '?', lower = static_cast<char>(c | 0x20);
        if (!is_digit(c) && (lower < 'a' || lower > 'f')) return -1;
        code = 16 * code + (is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return code;
}

}  // namespace

// Every function returns false where the body is not as it should be.
class JsonParser {
public:
    JsonParser(const JsonColumns& columns, std::string_view body, std::int64_t most)
        : columns(columns), p(body.data()), end(p + body.size()), size(body.size()), most(most),
          seen(static_cast<std::size_t>(columns.size()), -1), keys(static_cast<std::size_t>(columns.size())) {}

    bool body() {
        Cell key;
        if (!sign('{') || !string(key)) return false;
        const bool by_rows = key.view() == "rows";
        if (!by_rows && key.view() != "columns") return false;
        if (!sign(':') || !(by_rows ? read_rows() : read_columns()) || !sign('}')) return false;
        skip_spaces();
        return p == end;
    }

    JsonRows found;

private:
    void skip_spaces() {
        while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
    }

    bool sign(char c) {
        skip_spaces();
        if (p == end || *p != c) return false;
        ++p;
        return true;
    }

    // The column of the key at `place` of an object; most often it is the same as in the object before.
    bool key(std::size_t place, std::int64_t& column) {
        skip_spaces();
        const char* const first = p;
        Cell name;
        if (place >= keys.size() || !string(name)) return false;
        const std::string_view given(first, static_cast<std::size_t>(p - first));
        Key& known = keys[place];
        if (given != known.given) known = {given, columns.find(name.view())};
        column = known.column;
        return column >= 0 && sign(':');
    }

    bool read_rows() {
        const std::int64_t n_columns = columns.size();
        const char* const begin_rows = p;
        if (!n_columns || !sign('[')) return false;
        do {
            if (found.n == most || !sign('{')) return false;
            if (found.n == 1) reserve(end - begin_rows, p - begin_rows);
            const std::size_t row = found.cells.size();
            found.cells.resize(row + static_cast<std::size_t>(n_columns));
            for (std::int64_t place = 0; place < n_columns; ++place) {
                std::int64_t column;
                if ((place && !sign(',')) || !key(static_cast<std::size_t>(place), column)) return false;
                const auto at = static_cast<std::size_t>(column);
                if (std::exchange(seen[at], found.n) == found.n || !value(found.cells[row + at])) return false;
            }
            if (!sign('}')) return false;
            ++found.n;
        } while (sign(','));
        for (std::int64_t column = 0; column < n_columns; ++column) found.first.push_back(column);
        found.stride = n_columns;
        return sign(']');
    }

    // Memory for all rows, if they are as long as the first.
    void reserve(std::ptrdiff_t all, std::ptrdiff_t first) {
        const std::ptrdiff_t rows = std::min<std::ptrdiff_t>(all / std::max<std::ptrdiff_t>(first, 1) + 2, most);
        found.cells.reserve(static_cast<std::size_t>(rows * columns.size()));
    }

    bool read_columns() {
        const std::int64_t n_columns = columns.size();
        if (!n_columns || !sign('{')) return false;
        found.first.resize(static_cast<std::size_t>(n_columns));
        found.stride = 1;
        for (std::int64_t place = 0; place < n_columns; ++place) {
            std::int64_t column;
            if ((place && !sign(',')) || !key(static_cast<std::size_t>(place), column) || !sign('[')) return false;
            const auto at = static_cast<std::size_t>(column);
            if (std::exchange(seen[at], 0) == 0) return false;
            const std::size_t first = found.cells.size();
            found.first[at] = static_cast<std::int64_t>(first);
            do {
                if (static_cast<std::int64_t>(found.cells.size() - first) == (place ? found.n : most)) return false;
                found.cells.emplace_back();
                if (!value(found.cells.back())) return false;
            } while (sign(','));
            const auto n = static_cast<std::int64_t>(found.cells.size() - first);
            if (!sign(']') || (place && n != found.n)) return false;
            found.n = n;
        }
        return sign('}');
    }

    bool value(Cell& cell) {
        skip_spaces();
        if (p == end || *p != '[') return scalar(cell);
        const char* const list = p++;
        if (!sign(']')) {
            do {
                skip_spaces();
                if (!scalar(cell)) return false;
            } while (sign(','));
            if (!sign(']')) return false;
        }
        cell = Cell::of(Cell::other, list, static_cast<std::size_t>(p - list));
        return true;
    }

    bool scalar(Cell& cell) {
        if (p == end) return false;
        switch (*p) {
        case '"': return string(cell);
        case 'n': cell = Cell::none(); return word("null");
        case 't': cell = Cell::of(Cell::boolean, 1); return word("true");
        case 'f': cell = Cell::of(Cell::boolean, 0); return word("false");
        default: return number(cell);
        }
    }

    bool word(std::string_view text) {
        if (static_cast<std::size_t>(end - p) < text.size() || std::memcmp(p, text.data(), text.size())) return false;
        p += text.size();
        return true;
    }

    bool string(Cell& cell) {
        if (!sign('"')) return false;
        const char* const text = p;
        bool is_ascii = true, has_escapes = false;
        for (;;) {
            for (; end - p >= 8; p += 8) {
                const std::uint64_t stops = unusual(word_at(p));
                if (stops) {
                    p += std::countr_zero(stops) / 8;
                    break;
                }
            }
            if (p == end) return false;
            const auto c = static_cast<unsigned char>(*p++);
            if (c == '"') break;
            if (c < 0x20) return false;
            is_ascii &= c < 0x80;
            has_escapes |= c == '\\';
            if (c == '\\' && p++ == end) return false;
        }
        const std::string_view given(text, static_cast<std::size_t>(p - 1 - text));
        if (!is_ascii && !is_utf8(given)) return false;
        cell = Cell::of(Cell::text, given.data(), given.size());
        return !has_escapes || unescape(given, cell);
    }

    bool unescape(std::string_view given, Cell& cell) {
        if (!found.texts) {
            found.texts = std::make_unique_for_overwrite<char[]>(size);  // the text of an escape is shorter than it is
            written = found.texts.get();
        }
        char* const text = written;
        for (std::size_t at = 0; at < given.size();) {
            if (given[at] != '\\') {
                *written++ = given[at++];
            } else if (given[++at] != 'u') {
                const std::size_t kind = ESCAPES.find(given[at++]);
                if (kind == std::string_view::npos) return false;
                *written++ = ESCAPED[kind];
            } else {
                std::int32_t code = code_unit(given.substr(++at));
                at += 4;
                if (code >= 0xD800 && code < 0xDC00) {  // the first half of a character
                    const bool follows = given.substr(at, 2) == "\\u";
                    const std::int32_t second = follows ? code_unit(given.substr(at + 2)) : -1;
                    if (second < 0xDC00 || second > 0xDFFF) return false;
                    code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
                    at += 6;
                } else if (code < 0 || (code >= 0xDC00 && code < 0xE000)) {
                    return false;
                }
                write_utf8(static_cast<std::uint32_t>(code));
            }
        }
        cell = Cell::of(Cell::text, text, static_cast<std::size_t>(written - text));
        return true;
    }

    void write_utf8(std::uint32_t code) {
        const auto put = [&](std::uint32_t byte) { *written++ = static_cast<char>(byte); };
        if (code < 0x80) return put(code);
        if (code < 0x800) {
            put(0xC0 | code >> 6);
        } else {
            if (code < 0x10000) {
                put(0xE0 | code >> 12);
            } else {
                put(0xF0 | code >> 18);
                put(0x80 | (code >> 12 & 0x3F));
            }
            put(0x80 | (code >> 6 & 0x3F));
        }
        put(0x80 | (code & 0x3F));
    }

    std::ptrdiff_t digits() {
        const char* const first = p;
        while (p < end && is_digit(*p)) ++p;
        return p - first;
    }

    bool number(Cell& cell) {
        const char* const first = p;
        const bool negative = *p == '-';
        p += negative;
        const char* const whole = p;
        const std::ptrdiff_t n_digits = digits();
        if (!n_digits || (n_digits > 1 && *whole == '0')) return false;
        if (p == end || (*p != '.' && *p != 'e' && *p != 'E')) return integer(first, n_digits, cell);
        if (*p == '.' && (++p, !digits())) return false;
        if (p < end && (*p == 'e' || *p == 'E')) {
            ++p;
            if (p < end && (*p == '+' || *p == '-')) ++p;
            if (!digits()) return false;
        }
        double x;
        const std::from_chars_result read = std::from_chars(first, p, x);
        cell = Cell::of(x);
        return read.ec == std::errc() && read.ptr == p;
    }

    bool integer(const char* first, std::ptrdiff_t n_digits, Cell& cell) {
        if (n_digits > INT64_DIGITS) {
            cell = Cell::of(Cell::other, first, static_cast<std::size_t>(p - first));
            return n_digits <= LONG_DIGITS;
        }
        std::int64_t i = 0;
        std::from_chars(first, p, i);
        cell = Cell::of(Cell::integer, i);
        return true;
    }

    const JsonColumns& columns;
    const char *p, *const end;
    const std::size_t size;
    const std::int64_t most;
    std::vector<std::int64_t> seen;  // by column: the last row that had it
    struct Key {
        std::string_view given;
        std::int64_t column = -1;
    };
    std::vector<Key> keys;    // of the row before, in their order
    char* written = nullptr;  // the end of the texts
};

JsonColumns::JsonColumns(std::vector<std::string> given) : names(std::move(given)), offsets{0} {
    for (const std::string& each : names) {
        text += each;
        offsets.push_back(static_cast<std::int64_t>(text.size()));
    }
    table.emplace(Strings{offsets.data(), text.data(), text.data() + text.size(), size()});
}

std::int64_t JsonColumns::find(std::string_view name) const { return table->find(Names::as_string(name)); }

std::optional<JsonRows> JsonColumns::read(std::string_view body, std::int64_t most) const {
    JsonParser parser(*this, body, most);
    if (!parser.body()) return std::nullopt;
    return std::move(parser.found);
}

}  // namespace splinefm
