#include "search/cell_gains.hpp"

#include "bindings/arrays.hpp"

namespace splinefm::bindings {
namespace {

template <class T> using In3 = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

Array<double> cell_gains(const In3<std::int32_t>& cells, const In2<std::int64_t>& sizes, const In2<std::int64_t>& pairs,
                         const In<double>& residual, const In<std::int32_t>& fold, std::int64_t n_folds,
                         double shrinkage, int threads) {
    const CodedColumns columns{numbers(cells, "cells"), numbers(sizes, "sizes"),
                               static_cast<std::int64_t>(cells.shape(0)), static_cast<std::int64_t>(cells.shape(1)),
                               static_cast<std::int64_t>(cells.shape(2))};
    if (sizes.shape(0) != cells.shape(0) || sizes.shape(1) != cells.shape(1))
        throw nb::value_error("sizes must have a number for every level of a column");
    if (residual.size() != cells.shape(2) || fold.size() != cells.shape(2))
        throw nb::value_error("residual and fold must have a number per row");
    if (pairs.shape(1) != 2) throw nb::value_error("pairs must have two columns each");
    const Folds folds{numbers(fold, "fold"), n_folds};
    const auto* of = numbers(pairs, "pairs");
    const double* const values = numbers(residual, "residual");
    std::vector<double> found;
    {
        const nb::gil_scoped_release released;
        found = splinefm::cell_gains(columns, of, static_cast<std::int64_t>(pairs.shape(0)), values, folds, shrinkage,
                                     threads);
    }
    return give(std::move(found));
}

}  // namespace

void bind_cell_gains(nb::module_& module) {
    module.def("cell_gains", &cell_gains, nb::arg("cells").noconvert(), nb::arg("sizes").noconvert(),
               nb::arg("pairs").noconvert(), nb::arg("residual").noconvert(), nb::arg("fold").noconvert(),
               nb::kw_only(), nb::arg("n_folds"), nb::arg("shrinkage"), nb::arg("threads"),
               "How much smaller the squared residuals of each fold of rows get by the cell means of the others, for "
               "pairs of columns, or single columns, whose second number is -1. `cells` has the cell of every column, "
               "level and row, `sizes` the number of cells.");
}

}  // namespace splinefm::bindings
