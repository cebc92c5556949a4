#include "scorer/row_scorer.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "bindings/row_params.hpp"
#include "bindings/row_reader.hpp"
#include "engine.hpp"
#include "model_names.hpp"
#include "scorer/slot_scores.hpp"

namespace splinefm::bindings {
namespace {

constexpr int AT_ONCE = 8;  // rows of a list that are encoded, then scored

// The workspace of one call.
struct Workspace {
    RowWorkspace row;
    std::vector<Terms> terms;
    std::vector<float> vectors;
};

Link link_of(const std::string& name) {
    const std::array names{"score", "logistic", "identity", "log", "softmax"};  // in the order of the enumerators
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw nb::value_error(("unknown link '" + name + "'").c_str());
    return static_cast<Link>(found - names.begin());
}

// A scorer for each bias.
std::vector<RowScorer> make_outputs(const ParamArrays& arrays, std::int64_t n_fields, std::int64_t end_feature,
                                    const Prediction& prediction = {Link::none, 0.0, 1.0}) {
    std::vector<RowScorer> scorers;
    for (std::size_t output = 0; output < arrays.bias.size(); ++output)
        scorers.emplace_back(params_of(arrays, n_fields, end_feature, output, prediction));
    return scorers;
}

Array<float> slot_scores(const ShapeData& shape, const ParamArrays& params, In2<std::int32_t> start, In2<float> weight,
                         int threads) {
    const std::vector<RowScorer> scorers = make_outputs(params, shape.n_fields(), shape.n_features());
    const auto n = static_cast<std::int64_t>(start.shape(0));
    check(static_cast<std::int64_t>(start.shape(1)) == shape.n_windows() &&
              static_cast<std::int64_t>(weight.shape(0)) == n &&
              static_cast<std::int64_t>(weight.shape(1)) == shape.n_weights(),
          "start and weight do not have the shape of the layout");
    check(threads >= 1, "threads must be at least 1");
    const Shape view = shape.view({scorers.front().params.model, params.k, 0, 1, params.order}, 4);
    const Slots slots{n, numbers(start, "start"), numbers(weight, "weight")};
    std::vector<float> out(scorers.size() * static_cast<std::size_t>(n));
    bool inside;
    {
        const nb::gil_scoped_release released;
        inside = score_slots(scorers, view, slots, threads, out.data());
    }
    check(inside, "start has a feature outside of its field");
    return give(std::move(out));
}

class ScorerOwner {
public:
    ScorerOwner(std::shared_ptr<EncoderOwner> encoder, const ParamArrays& params, const std::string& link,
                double center, double scale)
        : encoder(encoder), params(params), n_outputs(params.bias.size()),
          scorers(make_outputs(params, encoder->encoder.n_fields(), encoder->encoder.end_feature(),
                               {link_of(link), center, scale})) {
        if ((n_outputs > 1) != (link == "softmax")) throw nb::value_error("a softmax needs a bias for every class");
        encoder->finished = true;
    }

    ~ScorerOwner() { delete spare.load(); }

    double score(nb::handle row, const Items& columns, const Items& readers, bool link) {
        if (n_outputs > 1) throw nb::value_error("a row has a score for every class; use scores");
        double found;
        one(row, columns, readers, link, &found);
        return found;
    }

    Array<double> scores(nb::handle row, const Items& columns, const Items& readers, bool link) {
        std::vector<double> found(n_outputs);
        one(row, columns, readers, link, found.data());
        return give(std::move(found));
    }

    void many(const nb::typed<nb::list, nb::any>& rows, const Items& columns, const Items& readers, bool link,
              Out<double> out) {
        check_source(*encoder, columns, readers);
        score_all(out, link, [&](std::size_t n, std::size_t i, Workspace& workspace, std::size_t place) {
            if (rows.size() != n) throw nb::value_error("rows and out must have the same length");
            const nb::object row = rows[i];
            read(Source{row, columns, readers}, workspace, place);
        });
    }

    void many_json(const JsonOwner& rows, const In<std::int64_t>& at, const Items& columns, const Items& readers,
                   bool link, Out<double> out) {
        check_source(*encoder, columns, readers);
        const std::int64_t* const chosen = numbers(at, "at");
        std::vector<std::int64_t> places;
        for (const nb::handle column : columns) {
            places.push_back(rows.columns->find(nb::cast<std::string>(column)));
            if (places.back() < 0) throw nb::key_error(nb::cast<std::string>(column).c_str());
        }
        score_all(out, link, [&](std::size_t n, std::size_t i, Workspace& workspace, std::size_t place) {
            if (at.size() != n) throw nb::value_error("at and out must have the same length");
            if (chosen[i] < 0 || chosen[i] >= rows.rows.n_rows())
                throw nb::index_error("at has a row index out of range");
            read(JsonSource{rows, chosen[i], places, readers}, workspace, place);
        });
    }

private:
    // Scores or predictions of a row.
    void one(nb::handle row, const Items& columns, const Items& readers, bool link, double* out) {
        check_source(*encoder, columns, readers);
        Borrowed workspace(*this);
        read(Source{row, columns, readers}, *workspace, 0);
        score_terms(*workspace, 0, link, out);
    }

    // Scores or predictions of n rows; `read_one(n, i, workspace, place)` reads row i.
    template <class ReadOne> void score_all(const Out<double>& out, bool link, ReadOne read_one) {
        double* const scores = numbers(out, "out");
        if (out.size() % n_outputs) throw nb::value_error("out must have a number for every class of a row");
        const std::size_t n = out.size() / n_outputs;
        Borrowed workspace(*this);
        for (std::size_t first = 0; first < n; first += AT_ONCE) {
            const std::size_t count = std::min<std::size_t>(AT_ONCE, n - first);
            for (std::size_t i = 0; i < count; ++i) read_one(n, first + i, *workspace, i);
            const nb::gil_scoped_release released;
            for (std::size_t i = 0; i < count; ++i) score_terms(*workspace, i, link, scores + (first + i) * n_outputs);
        }
    }

    void score_terms(Workspace& workspace, std::size_t i, bool link, double* out) const {
        for (std::size_t output = 0; output < n_outputs; ++output) {
            const RowScorer& scorer = scorers[output];
            out[output] = scorer.score(workspace.terms[i], workspace.vectors.data());
            if (link && n_outputs == 1) out[output] = scorer.predict(out[output]);
        }
        if (link && n_outputs > 1) to_probabilities(out, n_outputs);
    }

    // A free workspace: the one of the last call, or a new one while another call is running.
    class Borrowed {
    public:
        explicit Borrowed(ScorerOwner& owner) : owner(owner), workspace(owner.spare.exchange(nullptr)) {
            if (!workspace) workspace = owner.make_workspace();
        }
        ~Borrowed() { delete owner.spare.exchange(workspace); }
        Borrowed(const Borrowed&) = delete;
        Borrowed& operator=(const Borrowed&) = delete;
        Workspace& operator*() const { return *workspace; }
        Workspace* operator->() const { return workspace; }

    private:
        ScorerOwner& owner;
        Workspace* workspace;
    };

    Workspace* make_workspace() const {
        const std::int64_t most = encoder->encoder.max_terms();
        const RowScorer& scorer = scorers.front();
        return new Workspace{RowWorkspace(encoder->encoder.n_fields()), std::vector<Terms>(AT_ONCE, Terms(most)),
                             std::vector<float>(scorer.workspace_size(most))};
    }

    template <class RowSource> void read(const RowSource& source, Workspace& workspace, std::size_t i) {
        const RowScorer& scorer = scorers.front();  // all classes have the same features
        read_row(*encoder, source, &scorer, scorer.params.n_features, workspace.row, workspace.terms[i]);
    }

    const std::shared_ptr<EncoderOwner> encoder;
    const ParamArrays params;
    const std::size_t n_outputs;  // classes of a softmax
    const std::vector<RowScorer> scorers;
    std::atomic<Workspace*> spare = nullptr;
};

}  // namespace

void bind_row_scorer(nb::module_& module) {
    nb::class_<ParamArrays>(module, "RowParams",
                            "The parameters of a model as single rows are scored with them. The arrays are kept, not "
                            "copied. k is 4 or a multiple of 8. With several biases, the other parameters come one "
                            "class after the other.")
        .def(
            "__init__",
            [](ParamArrays* self, const std::string& model, std::int64_t k, std::int64_t members, std::int64_t order,
               In2<float> factors, In<float> linear, In<float> between, In<float> bias) {
                new (self) ParamArrays{scored_as(model_of(model)), k, members, order, factors, linear, between, bias};
            },
            nb::kw_only(), nb::arg("model"), nb::arg("k"), nb::arg("members"), nb::arg("order"),
            nb::arg("factors").noconvert(), nb::arg("linear").noconvert(), nb::arg("between").noconvert(),
            nb::arg("bias").noconvert());
    module.def("score_slots", &slot_scores, nb::kw_only(), nb::arg("shape"), nb::arg("params"),
               nb::arg("start").noconvert(), nb::arg("weight").noconvert(), nb::arg("threads"),
               "Scores of encoded rows, several classes one after the other.");
    nb::class_<ScorerOwner>(module, "RowScorer",
                            "Raw values of one row -> its score; `columns` and `readers` as in RowEncoder.")
        .def(nb::init<std::shared_ptr<EncoderOwner>, const ParamArrays&, const std::string&, double, double>(),
             nb::kw_only(), nb::arg("encoder"), nb::arg("params"), nb::arg("link"), nb::arg("center"), nb::arg("scale"))
        .def("score", &ScorerOwner::score, nb::arg("row"), nb::arg("columns"), nb::arg("readers"), nb::arg("link"),
             "The score of a row, or its prediction.")
        .def("scores", &ScorerOwner::scores, nb::arg("row"), nb::arg("columns"), nb::arg("readers"), nb::arg("link"),
             "The scores of a row for all classes, or their probabilities.")
        .def("many", &ScorerOwner::many, nb::arg("rows"), nb::arg("columns"), nb::arg("readers"), nb::arg("link"),
             nb::arg("out").noconvert(), "Scores of a list of rows, written to `out`, all classes of a row together.")
        .def("many_json", &ScorerOwner::many_json, nb::arg("rows"), nb::arg("at").noconvert(), nb::arg("columns"),
             nb::arg("readers"), nb::arg("link"), nb::arg("out").noconvert(),
             "Scores of some rows of JSON, whose numbers are `at`, as `many` writes them.");
}

}  // namespace splinefm::bindings
