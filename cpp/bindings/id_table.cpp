// IdTable: rows of a catalog by id.
#include "rank/id_table.hpp"

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

using Rows = In<std::int64_t>;
using Ids = In2<std::uint64_t>;

Words view(const Ids& words, const char* name) {
    return {numbers(words, name), static_cast<std::int64_t>(words.shape(0)), static_cast<std::int64_t>(words.shape(1))};
}

std::int64_t insert(IdTable& self, const Ids& words, const Rows& rows) {
    const Words ids = view(words, "words");
    const std::int64_t *data = numbers(rows, "rows"), n = rows.size();
    nb::gil_scoped_release released;
    return self.insert(ids, data, n);
}

Array<std::int64_t> find(const IdTable& self, const Ids& words, const Ids& wanted) {
    const Words ids = view(words, "words"), others = view(wanted, "wanted");
    std::vector<std::int64_t> out(others.n);
    {
        nb::gil_scoped_release released;
        self.find(ids, others, out.data());
    }
    return give(std::move(out));
}

void erase(IdTable& self, const Ids& words, const Rows& rows) {
    const Words ids = view(words, "words");
    const std::int64_t *data = numbers(rows, "rows"), n = rows.size();
    nb::gil_scoped_release released;
    self.erase(ids, data, n);
}

void rebuild(IdTable& self, const Ids& words) {
    const Words ids = view(words, "words");
    nb::gil_scoped_release released;
    self.rebuild(ids);
}

}  // namespace

void bind_id_table(nb::module_& module) {
    nb::class_<IdTable>(module, "IdTable",
                        "Rows by id: a hash table of rows whose ids are words of eight bytes, shape (rows, width).")
        .def(nb::init<>())
        .def("insert", &insert, nb::arg("words").noconvert(), nb::arg("rows").noconvert(),
             "Enter rows; the first whose id was there already, and which is left out, or -1.")
        .def("find", &find, nb::arg("words").noconvert(), nb::arg("wanted").noconvert(),
             "Rows of ids, -1 where there is none.")
        .def("erase", &erase, nb::arg("words").noconvert(), nb::arg("rows").noconvert(), "Take rows out.")
        .def("rebuild", &rebuild, nb::arg("words").noconvert(), "Rebuild the table for words that have become wider.");
}

}  // namespace splinefm::bindings
