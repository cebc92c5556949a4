#include "scorer/json_rows.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>
#include <string>
#include <utility>

#include "bindings/row_reader.hpp"

namespace splinefm::bindings {
namespace {

// The columns that Python sees.
struct ColumnsOwner {
    ColumnsOwner(const std::vector<std::string>& names, nb::object decode)
        : columns(std::make_shared<const JsonColumns>(names)), decode(std::move(decode)) {
        if (std::set(names.begin(), names.end()).size() != names.size())
            throw nb::value_error("names must be different");
    }

    const std::shared_ptr<const JsonColumns> columns;
    const nb::object decode;
};

nb::object read_body(const ColumnsOwner& self, const nb::bytes& body, std::int64_t most) {
    std::optional<JsonRows> found = self.columns->read({body.c_str(), body.size()}, most);
    if (!found) return nb::none();
    return nb::cast(JsonOwner{body, self.columns, self.decode, std::move(*found)});
}

nb::typed<nb::list, nb::any> column_values(const JsonOwner& self, const std::string& name) {
    const std::int64_t at = self.columns->find(name);
    if (at < 0) throw nb::key_error(name.c_str());
    nb::list values;
    for (std::int64_t i = 0; i < self.rows.n_rows(); ++i) values.append(self.object(self.rows.at(i, at)));
    return values;
}

}  // namespace

void bind_json_rows(nb::module_& module) {
    nb::class_<JsonOwner>(module, "JsonRows", "Rows in a body of JSON, for `RowScorer.many_json`; see JsonColumns.")
        .def("__len__", [](const JsonOwner& self) { return self.rows.n_rows(); })
        .def("column", &column_values, nb::arg("name"), "The values of a column.");
    nb::class_<ColumnsOwner>(
        module, "JsonColumns",
        "Names of the columns of rows in JSON. `decode` makes a value of the bytes of its JSON; it "
        "is asked for values that have no short way.")
        .def(nb::init<const std::vector<std::string>&, nb::object>(), nb::arg("names"), nb::arg("decode"))
        .def("read", &read_body, nb::arg("body"), nb::arg("most"),
             nb::sig("def read(self, body: bytes, most: int) -> JsonRows | None"),
             "The rows of a body, or None where a decoder should look at it: it is no {\"rows\": [..]} or "
             "{\"columns\": {..}}, a row has other columns, there are none or more than `most`, or it is no JSON.");
}

}  // namespace splinefm::bindings
