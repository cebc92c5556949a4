#include "encode/string_table.hpp"

#include <nanobind/stl/pair.h>

#include <limits>
#include <stdexcept>

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

using Offsets = In<std::int64_t>;
using Text = In<std::uint8_t>;

constexpr std::int64_t MOST = 1 << 30;

// Strings whose bytes are all inside the text. Looking at every offset takes a while: call it without the GIL.
Strings check(Strings all) {
    if (!all.are_inside(all.end - all.text))
        throw std::invalid_argument("offsets must not decrease, and lie between 0 and the length of text");
    return all;
}

Strings unchecked(const Offsets& offsets, const Text& text) {
    const std::int64_t* const at = numbers(offsets, "offsets");
    if (offsets.size() == 0)
        throw nb::value_error("offsets must have one number more than there are strings, got none");
    const auto n = static_cast<std::int64_t>(offsets.size()) - 1;
    if (n > MOST) throw nb::value_error("offsets must be of at most 2**30 strings");
    const char* const bytes = reinterpret_cast<const char*>(text.data());
    return {at, bytes, bytes + text.size(), n};
}

// The table and the arrays that it reads.
struct Owner {
    Offsets offsets;
    Text text;
    StringTable table;

    Owner(Offsets offsets, Text text) : offsets(offsets), text(text), table(check(unchecked(offsets, text))) {}
};

Array<std::int32_t> find(const Owner& self, const Offsets& offsets, const Text& text) {
    const Strings asked = unchecked(offsets, text);
    auto [out, array] = new_array<std::int32_t>(asked.n);
    const nb::gil_scoped_release released;
    self.table.find(check(asked), 0, -1, out, 1);
    return array;
}

std::int64_t find_into(const Owner& self, const Offsets& offsets, const Text& text, std::int64_t first,
                       std::int32_t unknown, const OutColumn<std::int32_t>& out) {
    const Strings asked = unchecked(offsets, text);
    const auto known = static_cast<std::int64_t>(self.offsets.size()) - 1;
    if (first < 0 || first > std::numeric_limits<std::int32_t>::max() - known)
        throw nb::value_error("first must not be negative, and features fewer than 2**31");
    std::int32_t* const to = column(out, asked.n, "out");
    const nb::gil_scoped_release released;
    return self.table.find(check(asked), static_cast<std::int32_t>(first), unknown, to, out.stride(0));
}

std::pair<Array<std::int32_t>, Array<std::int64_t>> count(const Offsets& offsets, const Text& text) {
    const Strings all = unchecked(offsets, text);
    StringCounts found;
    {
        const nb::gil_scoped_release released;
        found = count_strings(check(all));
    }
    return {give(std::move(found.first)), give(std::move(found.count))};
}

Array<std::int32_t> slots(const Owner& self) { return give(std::vector(self.table.begin(), self.table.end())); }

Array<std::uint64_t> probe_hash(const Offsets& offsets, const Text& text) {
    const Strings all = check(unchecked(offsets, text));
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
        .def("find", &find, offsets, text, "Position of each string among the known ones, -1 where it is not known.")
        .def("find_into", &find_into, offsets, text, nb::arg("first"), nb::arg("unknown"), nb::arg("out").noconvert(),
             "Write `first` + the position of each string, or `unknown`; returns how many are not known.")
        .def("slots", &slots, "The hash table: positions of strings, or -1, for files that are used in place.");
    module.def(
        "count_strings", &count, offsets, text,
        "Position of the first of each kind of string, in the order of occurrence, and how many are equal to it.");
    module.def("probe_hash", &probe_hash, offsets, text, "For tests: the hash of each string.");
}

}  // namespace splinefm::bindings
