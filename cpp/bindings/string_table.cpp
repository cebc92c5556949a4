#include "encode/string_table.hpp"

#include <nanobind/stl/pair.h>

#include <limits>

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

using Offsets = In<std::int64_t>;
using Text = In<std::uint8_t>;

// Strings whose bytes are all inside the text.
Strings strings(const Offsets& offsets, const Text& text) {
    const std::int64_t* at = numbers(offsets, "offsets");
    if (offsets.size() == 0)
        throw nb::value_error("offsets must have one number more than there are strings, got none");
    const auto n = static_cast<std::int64_t>(offsets.size()) - 1, size = static_cast<std::int64_t>(text.size());
    if (n > 1 << 30) throw nb::value_error("offsets must be those of at most 2**30 strings");
    bool sound = at[0] >= 0 && at[n] <= size;
    for (std::int64_t i = 0; i < n; ++i) sound &= at[i] <= at[i + 1];
    if (!sound) throw nb::value_error("offsets must not decrease, and lie between 0 and the length of text");
    const char* const bytes = reinterpret_cast<const char*>(text.data());
    return {at, bytes, bytes + size, n};
}

// The table and the arrays that it reads.
struct Owner {
    Offsets offsets;
    Text text;
    StringTable table;

    Owner(Offsets offsets, Text text) : offsets(offsets), text(text), table(strings(offsets, text)) {}
};

Array<std::int32_t> find(const Owner& self, const Offsets& offsets, const Text& text) {
    const Strings asked = strings(offsets, text);
    auto [out, array] = new_array<std::int32_t>(asked.n);
    const nb::gil_scoped_release released;
    self.table.find(asked, out);
    return array;
}

std::pair<Array<std::int32_t>, Array<std::int64_t>> count(const Offsets& offsets, const Text& text) {
    const Strings all = strings(offsets, text);
    StringCounts found;
    {
        const nb::gil_scoped_release released;
        found = count_strings(all);
    }
    return {give(std::move(found.first)), give(std::move(found.count))};
}

Array<std::uint64_t> probe_hash(const Offsets& offsets, const Text& text) {
    const Strings all = strings(offsets, text);
    auto [out, array] = new_array<std::uint64_t>(all.n);
    for (std::int64_t i = 0; i < all.n; ++i) out[i] = hash(all[i]);
    return array;
}

}  // namespace

void bind_string_table(nb::module_& module) {
    const auto offsets = nb::arg("offsets").noconvert();
    const auto text = nb::arg("text").noconvert();
    nb::class_<Owner>(module, "StringTable",
                      "Positions of known strings: string i is `text[offsets[i]:offsets[i + 1]]`, in UTF-8.")
        .def(nb::init<Offsets, Text>(), offsets, text)
        .def("find", &find, offsets, text, "Position of each string among the known ones, -1 where it is not known.");
    module.def(
        "count_strings", &count, offsets, text,
        "Position of the first of each kind of string, in the order of occurrence, and how many are equal to it.");
    module.def("probe_hash", &probe_hash, offsets, text, "For tests: the hash of each string.");
}

}  // namespace splinefm::bindings
