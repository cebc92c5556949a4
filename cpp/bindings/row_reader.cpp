#include "bindings/row_reader.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "scorer/read_row.hpp"

namespace splinefm::bindings {
namespace {

using Given = std::pair<std::vector<std::int64_t>, std::vector<double>>;

// A plain value as a cell; any other is for the reader.
Cell cell_of(PyObject* given) {
    if (PyUnicode_Check(given)) {
        Py_ssize_t size;
        const char* const text = PyUnicode_AsUTF8AndSize(given, &size);
        if (text) return Cell::of(Cell::text, text, static_cast<std::size_t>(size));
        PyErr_Clear();  // no valid Unicode
    } else if (PyFloat_Check(given)) {
        return Cell::of(PyFloat_AsDouble(given));
    } else if (given == Py_None) {
        return Cell::none();
    } else if (PyLong_CheckExact(given)) {
        int overflow;
        const long long i = PyLong_AsLongLongAndOverflow(given, &overflow);
        if (!overflow) return Cell::of(Cell::integer, i);
    } else if (PyBool_Check(given)) {
        return Cell::of(Cell::boolean, given == Py_True);
    }
    return Cell::of(Cell::other, nullptr, 0);
}

// The values of a row that are objects. They are numbered through: v is the first of a field, or one of a cross.
struct Objects {
    const Source& source;
    const std::vector<nb::object>& values;

    Cell cell(int v) const { return cell_of(object(v).ptr()); }
    const nb::object& object(int v) const { return values[static_cast<std::size_t>(v)]; }
    nb::object column(int v) const { return source.columns[v]; }
};

// The values of a row of JSON, which become objects if they must.
struct JsonValues {
    const JsonSource& source;

    std::int64_t place(int v) const { return source.columns[static_cast<std::size_t>(v)]; }
    const Cell& cell(int v) const { return source.owner.rows.at(source.row, place(v)); }
    nb::object object(int v) const { return source.owner.object(cell(v)); }
    nb::object column(int v) const { return nb::cast(source.owner.columns->name(place(v))); }
};

template <class Values> class Reader {
public:
    Reader(const EncoderOwner& owner, const Values& values, std::int64_t n_features)
        : owner(owner), values(values), most_features(n_features) {}

    std::string_view text(int v) const {
        const Cell& given = values.cell(v);
        return given.kind == Cell::text ? given.view() : std::string_view();
    }

    std::int64_t category(int v, const Names& names, std::int64_t end) const {
        const std::int64_t row = find_name(names, values.cell(v));
        return row != ASK ? row : checked(v, nb::cast<std::int64_t>(ask(v, values.object(v))), end);
    }

    // A plain number, or what the reader makes of a value.
    double number(int v) const {
        const Cell& given = values.cell(v);
        double x;
        if (!(owner.plain[v] || given.kind == Cell::missing) || !read_number(given, x))
            x = nb::cast<double>(ask(v, values.object(v)));
        return x;
    }

    [[noreturn]] void refuse(int v, double x) const {
        const nb::object text = nb::repr(values.column(v));
        throw nb::value_error(("column " + std::string(nb::borrow<nb::str>(text).c_str()) +
                               " does not take the number " + std::to_string(x))
                                  .c_str());
    }

    [[noreturn]] void refuse_offset(int v, double x) const {
        const nb::object text = nb::repr(values.column(v));
        const bool is_exposure = owner.encoder.offset().kind == ScoreOffset::logarithm;
        throw nb::value_error((std::string(is_exposure ? "the exposure " : "the offset ") +
                               nb::borrow<nb::str>(text).c_str() + " must be a finite number" +
                               (is_exposure ? " above 0" : "") + " and not too large, got " + std::to_string(x))
                                  .c_str());
    }

    std::int64_t n_features() const { return most_features; }

    void list(int v, const ListField& field, Terms& terms) const {
        if (values.cell(v).kind == Cell::missing && field.names.missing != ASK)
            return terms.add(field.names.missing, 1.0f);
        const nb::object given = values.object(v);
        const std::int64_t begin = terms.n_terms;
        if (add_names(field, given.ptr(), terms)) return;
        terms.n_terms = begin;
        add_given(v, field.length, given, terms);
    }

    void given(int v, const GivenField& field, Terms& terms) const {
        if (field.n_values == 1) return add_given(v, field.length, values.object(v), terms);
        nb::list several;
        for (int i = 0; i < field.n_values; ++i) several.append(values.object(v + i));
        add_given(v, field.length, several, terms);
    }

private:
    nb::object ask(int v, const nb::object& given) const { return values.source.readers[v](given); }

    static std::int64_t checked(int v, std::int64_t row, std::int64_t end) {
        if (row < NO_FEATURE || row >= end)
            throw nb::index_error(("reader " + std::to_string(v) + " gave feature " + std::to_string(row) +
                                   ", there are " + std::to_string(end))
                                      .c_str());
        return row;
    }

    // Terms of a list of strings or integers; false where the reader must be asked. Elements that are missing or
    // empty are none.
    static bool add_names(const ListField& field, PyObject* given, Terms& terms) {
        const bool is_list = PyList_CheckExact(given);
        if (!is_list && !PyTuple_CheckExact(given)) return false;
        const Py_ssize_t size = PySequence_Size(given);
        const std::int64_t begin = terms.n_terms;
        std::int64_t count = 0;
        PyTypeObject* kind = nullptr;
        for (Py_ssize_t i = 0; i < size; ++i) {
            const nb::object element = nb::steal(PySequence_GetItem(given, i));
            if (!element.is_valid()) throw nb::python_error();
            if (element.is_none()) continue;
            if (kind && Py_TYPE(element.ptr()) != kind) return false;  // such as 1 in [1, 2.5], which is "1.0"
            kind = Py_TYPE(element.ptr());
            const bool is_text = PyUnicode_CheckExact(element.ptr());
            if (!is_text && !PyLong_CheckExact(element.ptr())) return false;
            if ((is_text && PyUnicode_GetLength(element.ptr()) == 0) || count == field.length) continue;
            const std::int64_t row = find_name(field.names, cell_of(element.ptr()));
            if (row == ASK) return false;
            ++count;
            if (row >= 0) terms.add(row, 1.0f);
        }
        if (field.averages)
            for (std::int64_t t = begin; t < terms.n_terms; ++t)
                terms.weights[t] = static_cast<float>(1.0 / static_cast<double>(count));
        return true;
    }

    void add_given(int v, std::int64_t most, const nb::object& given, Terms& terms) const {
        const auto [rows, weights] = nb::cast<Given>(ask(v, given));
        if (rows.size() != weights.size() || static_cast<std::int64_t>(rows.size()) > most)
            throw nb::value_error(("reader " + std::to_string(v) + " must give a weight per row, and at most " +
                                   std::to_string(most) + " rows")
                                      .c_str());
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (checked(v, rows[i], most_features) >= 0) terms.add(rows[i], static_cast<float>(weights[i]));
    }

    const EncoderOwner& owner;
    const Values values;
    const std::int64_t most_features;
};

// Takes the values of a row, which the row itself may drop while a reader is asked, and gives them back at the end.
class Taken {
public:
    Taken(const EncoderOwner& owner, const Source& source, std::vector<nb::object>& values) : values(values) {
        for (int v = 0; v < owner.encoder.n_values() && valid; ++v) {
            values.push_back(nb::steal(PyObject_GetItem(source.row.ptr(), PyTuple_GetItem(source.columns.ptr(), v))));
            valid = values.back().is_valid();
        }
    }
    ~Taken() { values.clear(); }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

    bool valid = true;  // or an error of Python is set

private:
    std::vector<nb::object>& values;
};

}  // namespace

void check_source(const EncoderOwner& owner, const nb::tuple& columns, const nb::tuple& readers) {
    const auto n = static_cast<std::size_t>(owner.encoder.n_values());
    if (columns.size() != n || readers.size() != n)
        throw nb::value_error("columns and readers must be tuples with an item for every field, or part of a cross");
}

nb::object JsonOwner::object(const Cell& cell) const {
    switch (cell.kind) {
    case Cell::missing: return nb::none();
    case Cell::boolean: return nb::bool_(cell.i != 0);
    case Cell::integer: return nb::int_(cell.i);
    case Cell::number: return nb::float_(cell.x);
    case Cell::text: return nb::str(cell.bytes, cell.size);
    case Cell::other: break;
    }
    return decode(nb::bytes(cell.bytes, cell.size));
}

void read_row(const EncoderOwner& owner, const Source& source, const RowScorer* scorer, std::int64_t n_features,
              RowWorkspace& workspace, Terms& terms) {
    const Taken taken(owner, source, workspace.values);
    if (!taken.valid) throw nb::python_error();
    const Reader reader(owner, Objects{source, workspace.values}, n_features);
    splinefm::read_row(reader, owner.encoder, scorer, workspace.found.data(), terms);
}

void read_row(const EncoderOwner& owner, const JsonSource& source, const RowScorer* scorer, std::int64_t n_features,
              RowWorkspace& workspace, Terms& terms) {
    const Reader reader(owner, JsonValues{source}, n_features);
    splinefm::read_row(reader, owner.encoder, scorer, workspace.found.data(), terms);
}

}  // namespace splinefm::bindings
