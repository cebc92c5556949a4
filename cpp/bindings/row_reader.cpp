#include "bindings/row_reader.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "scorer/read_row.hpp"

namespace splinefm::bindings {
namespace {

using Given = std::pair<std::vector<std::int64_t>, std::vector<double>>;

constexpr double EXACT = 9007199254740992.0;  // 2^53: floats below it that are integers are spelled like integers

class Reader {
public:
    // The values of a row are numbered through: v is the first of a field, or one of a cross.
    Reader(const EncoderOwner& owner, const Source& source, std::int64_t n_features,
           const std::vector<nb::object>& values)
        : owner(owner), source(source), most_features(n_features), values(values) {}

    const nb::object& value(int v) const { return values[static_cast<std::size_t>(v)]; }

    std::string_view text(int v) const {
        Py_ssize_t size;
        if (!PyUnicode_Check(value(v).ptr())) return {};
        const char* const text = PyUnicode_AsUTF8AndSize(value(v).ptr(), &size);
        if (text) return {text, static_cast<std::size_t>(size)};
        PyErr_Clear();  // no valid Unicode
        return {};
    }

    std::int64_t category(int v, const Names& names, std::int64_t end) const {
        const nb::object& given = value(v);
        const std::int64_t row = row_of(names, given.ptr());
        return row != ASK ? row : checked(v, nb::cast<std::int64_t>(ask(v, given)), end);
    }

    // A plain number, or what the reader makes of a value.
    double number(int v) const {
        const nb::object& given = value(v);
        double x;
        if (!(owner.plain[v] || given.is_none()) || !is_number(given.ptr(), x)) x = nb::cast<double>(ask(v, given));
        return x;
    }

    [[noreturn]] void refuse(int v, double x) const {
        const nb::object text = nb::repr(source.columns[v]);
        throw nb::value_error(("column " + std::string(nb::borrow<nb::str>(text).c_str()) +
                               " does not take the number " + std::to_string(x))
                                  .c_str());
    }

    std::int64_t n_features() const { return most_features; }

    void list(int v, const ListField& field, Terms& terms) const {
        const nb::object& given = value(v);
        const std::int64_t begin = terms.n_terms;
        if (given.is_none() && field.names.missing != ASK) {
            terms.add(field.names.missing, 1.0f);
        } else if (!add_names(field, given.ptr(), terms)) {
            terms.n_terms = begin;
            add_given(v, field.length, given, terms);
        }
    }

    void given(int v, const GivenField& field, Terms& terms) const {
        if (field.n_values == 1) return add_given(v, field.length, value(v), terms);
        nb::list values;
        for (int i = 0; i < field.n_values; ++i) values.append(value(v + i));
        add_given(v, field.length, values, terms);
    }

private:
    nb::object ask(int v, const nb::object& given) const { return source.readers[v](given); }

    static std::int64_t checked(int v, std::int64_t row, std::int64_t end) {
        if (row < NO_FEATURE || row >= end)
            throw nb::index_error(("reader " + std::to_string(v) + " gave feature " + std::to_string(row) +
                                   ", there are " + std::to_string(end))
                                      .c_str());
        return row;
    }

    // Whether a value is a plain number; NaN if it is missing.
    static bool is_number(PyObject* given, double& x) {
        if (PyFloat_Check(given)) {
            x = PyFloat_AsDouble(given);
            return true;
        }
        if (given == Py_None) {
            x = std::numeric_limits<double>::quiet_NaN();
            return true;
        }
        if (!PyLong_CheckExact(given) && !PyBool_Check(given)) return false;
        x = PyLong_AsDouble(given);
        if (x != -1.0 || !PyErr_Occurred()) return true;
        PyErr_Clear();  // an integer beyond all floats
        return false;
    }

    static std::int64_t row_of_text(const Names& names, PyObject* given) {
        Py_ssize_t size;
        const char* const text = PyUnicode_AsUTF8AndSize(given, &size);
        if (text) return names.find({text, static_cast<std::size_t>(size)});
        PyErr_Clear();  // no valid Unicode
        return ASK;
    }

    static std::int64_t row_of_int(const Names& names, PyObject* given) {
        int overflow;
        const long long x = PyLong_AsLongLongAndOverflow(given, &overflow);
        return overflow ? ASK : names.find(Digits(x).text());
    }

    static std::int64_t row_of(const Names& names, PyObject* given) {
        if (PyUnicode_Check(given)) return row_of_text(names, given);
        if (given == Py_None) return names.missing;
        if (PyLong_CheckExact(given)) return row_of_int(names, given);
        if (PyBool_Check(given)) return names.find(given == Py_True ? "true" : "false");
        if (!PyFloat_Check(given)) return ASK;
        const double x = PyFloat_AsDouble(given);
        if (std::isnan(x)) return names.missing;
        if (x != std::trunc(x) || std::abs(x) >= EXACT) return ASK;
        return names.find(Digits(static_cast<std::int64_t>(x)).text());
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
            const std::int64_t row =
                is_text ? row_of_text(field.names, element.ptr()) : row_of_int(field.names, element.ptr());
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
    const Source& source;
    const std::int64_t most_features;
    const std::vector<nb::object>& values;
};

// Takes the values of a row, which the row itself may drop while a reader is asked, and gives them back at the end.
class Values {
public:
    Values(const EncoderOwner& owner, const Source& source, std::vector<nb::object>& values) : values(values) {
        for (int v = 0; v < owner.encoder.n_values() && sound; ++v) {
            values.push_back(nb::steal(PyObject_GetItem(source.row.ptr(), PyTuple_GetItem(source.columns.ptr(), v))));
            sound = values.back().is_valid();
        }
    }
    ~Values() { values.clear(); }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;

    bool sound = true;  // or an error of Python is set

private:
    std::vector<nb::object>& values;
};

}  // namespace

void check_source(const EncoderOwner& owner, const Source& source) {
    const auto n = static_cast<std::size_t>(owner.encoder.n_values());
    if (source.columns.size() != n || source.readers.size() != n)
        throw nb::value_error("columns and readers must be tuples with an item for every field, or part of a cross");
}

void read_row(const EncoderOwner& owner, const Source& source, const RowScorer* scorer, std::int64_t n_features,
              RowWorkspace& workspace, Terms& terms) {
    const Values taken(owner, source, workspace.values);
    if (!taken.sound) throw nb::python_error();
    const Reader reader(owner, source, n_features, workspace.values);
    splinefm::read_row(reader, owner.encoder, scorer, workspace.found.data(), terms);
}

}  // namespace splinefm::bindings
