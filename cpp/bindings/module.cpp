// The module `splinefm._core`: the loops of the package. One file per class in this folder, no logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>

#include "dispatch.hpp"

namespace nb = nanobind;

namespace splinefm::bindings {
void bind_string_table(nb::module_& module);
void bind_elementary(nb::module_& module);
void bind_interpolation(nb::module_& module);
void bind_splines(nb::module_& module);
void bind_summary(nb::module_& module);
void bind_cell_gains(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_explain(nb::module_& module);
void bind_probe(nb::module_& module);
void bind_id_table(nb::module_& module);
void bind_top_k(nb::module_& module);
void bind_json_rows(nb::module_& module);
void bind_context(nb::module_& module);
void bind_row_encoder(nb::module_& module);
void bind_row_scorer(nb::module_& module);
}  // namespace splinefm::bindings

NB_MODULE(_core, module) {
    using namespace splinefm;
    // Objects that other packages keep beyond the end of Python, as Hypothesis keeps tests and all that they refer to,
    // would be called leaks on the screen of a user. A test asks for the notices.
    nb::set_leak_warnings(std::getenv("SPLINEFM_LEAKS") != nullptr);
    module.doc() = "The compiled loops of splinefm.";
    try {
        module.attr("isa") = choose_kernels().isa;
    } catch (const std::exception& problem) {
        throw nb::import_error(problem.what());
    }
    module.attr("isas") = nb::tuple(nb::cast(available_isas()));
    bindings::bind_string_table(module);
    bindings::bind_elementary(module);
    bindings::bind_interpolation(module);
    bindings::bind_splines(module);
    bindings::bind_summary(module);
    bindings::bind_cell_gains(module);
    bindings::bind_engine(module);
    bindings::bind_explain(module);
    bindings::bind_probe(module);
    bindings::bind_id_table(module);
    bindings::bind_top_k(module);
    bindings::bind_json_rows(module);
    bindings::bind_context(module);
    bindings::bind_row_encoder(module);
    bindings::bind_row_scorer(module);
}
