// Bodies of JSON, chosen by libFuzzer: all that is read lies where it should, and spaces change nothing.
//
//     fuzz_coverage_json CORPUS
#include "scorer/json_rows.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "scorer/spelling.hpp"

namespace {

using splinefm::Cell;
using splinefm::JsonRows;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

bool same(const Cell& a, const Cell& b) {
    if (a.kind != b.kind) return false;
    if (a.kind == Cell::text || a.kind == Cell::other) return a.view() == b.view();
    return a.kind == Cell::missing || a.i == b.i;  // the bits of a number
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const splinefm::JsonColumns columns({"x", "c", "\xc3\xbc"});
    constexpr std::int64_t MOST = 20;
    const std::string_view body(reinterpret_cast<const char*>(data), size);
    const std::optional<JsonRows> found = columns.read(body, MOST);
    const std::string spaced = " \n" + std::string(body) + "\t ";
    const std::optional<JsonRows> again = columns.read(spaced, MOST);
    require(found.has_value() == again.has_value(), "spaces around a body matter");
    if (!found) return 0;
    require(found->n_rows() > 0 && found->n_rows() <= MOST && again->n_rows() == found->n_rows(), "a number of rows");
    for (std::int64_t row = 0; row < found->n_rows(); ++row)
        for (std::int64_t column = 0; column < columns.size(); ++column) {
            const Cell& cell = found->at(row, column);
            require(cell.kind != Cell::number || std::isfinite(cell.x), "a number is not finite");
            require(cell.kind != Cell::text || splinefm::is_utf8(cell.view()), "a text is not UTF-8");
            require(cell.kind != Cell::other || (cell.bytes >= body.data() && cell.bytes + cell.size <= &body.back()),
                    "a value is not in the body");
            require(same(cell, again->at(row, column)), "spaces around a body change a value");
        }
    return 0;
}
