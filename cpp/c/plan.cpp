#include "c/plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "model_names.hpp"
#include "scorer/checks.hpp"
#include "splinefm.h"

namespace splinefm::c {
namespace {

constexpr std::int64_t MAX_FIELDS = 1 << 14, MAX_OUTPUTS = 1 << 16;
constexpr std::int64_t MAX_WORKSPACE = std::int64_t{1} << 28;  // numbers

template <class T> std::vector<T> copy(std::span<const T> array) { return {array.begin(), array.end()}; }

// A hash table from a file: positions of n entries, a power of two of slots, one of them free.
std::span<const std::int32_t> read_slots(Cursor& cursor, std::int64_t n) {
    const auto slots = cursor.array<std::int32_t>();
    bool valid = std::has_single_bit(slots.size()), free = false;
    for (const std::int32_t at : slots) {
        valid &= at >= -1 && at < n;
        free |= at == -1;
    }
    if (!valid || !free) damaged("a hash table leads nowhere");
    return slots;
}

class Parser {
public:
    Parser(Plan& plan, const Image& image) : plan(plan), cursor(image), has_limits(image.has_limits()) {}

    void read(const Image& image) {
        plan.written_by = cursor.text();
        plan.model = cursor.text();
        plan.link = cursor.text();
        const std::int64_t n_columns = cursor.count();
        for (std::int64_t i = 0; i < n_columns; ++i) plan.columns.push_back(cursor.text());
        const std::int64_t n_classes = cursor.count();
        for (std::int64_t i = 0; i < n_classes; ++i) plan.classes.push_back(cursor.text());
        const std::int64_t n_fields = cursor.integer(1, MAX_FIELDS);
        for (std::int64_t f = 0; f < n_fields; ++f) read_field();
        read_params(image);
        if (image.has_offset() || (has_limits && cursor.boolean())) read_offset(image);
        if (!cursor.at_end()) damaged("its description has a rest");
    }

private:
    std::int64_t column() { return cursor.integer(0, static_cast<std::int64_t>(plan.columns.size()) - 1); }

    void read_field() {
        FieldInfo info{
            .name = cursor.text(), .kind = static_cast<int>(cursor.integer(SFM_NUMERICAL, SFM_CROSS)), .columns = {}};
        const std::size_t before = plan.values.size();
        switch (info.kind) {
        case SFM_NUMERICAL: plan.encoder.add(read_number()); break;
        case SFM_CATEGORICAL: plan.encoder.add(CategoryField{read_names()}); break;
        case SFM_MULTI_VALUED: plan.encoder.add(read_list()); break;
        default: plan.encoder.add(read_cross());
        }
        for (std::size_t v = before; v < plan.values.size(); ++v) info.columns.push_back(plan.values[v].column);
        plan.fields.push_back(std::move(info));
    }

    NumberField read_number() {
        ValueRule rule{.column = column(), .is_number = true};
        rule.part = static_cast<Part>(cursor.integer(0, 4));
        NumberField field{.first = cursor.integer(),
                          .rules = {},
                          .has_missing = cursor.boolean(),
                          .apart = cursor.boolean(),
                          .pieces = {},
                          .windows = {}};
        rule.missing = field.has_missing;
        const std::int64_t n_rules = cursor.count();
        for (std::int64_t i = 0; i < n_rules; ++i) {
            const auto sign = static_cast<Rule::Sign>(cursor.integer(0, Rule::at_least));
            field.rules.push_back({sign, cursor.number()});
        }
        field.pieces.knots = copy(cursor.array<double>());
        field.pieces.values = copy(cursor.array<double>());
        field.pieces.powers = static_cast<int>(cursor.integer(1, 4));
        if (has_limits) {
            field.limits.low = cursor.number();
            field.limits.high = cursor.number();
            field.limits.missing = cursor.boolean();
        }
        rule.limits = field.limits;
        check_number(field);
        field.pieces.make_guide();
        const std::int64_t n_windows = cursor.count();
        for (std::int64_t i = 0; i < n_windows; ++i) field.windows.push_back(read_window());
        plan.values.push_back(std::move(rule));
        return field;
    }

    BasisWindow read_window() {
        BasisWindow window{.segments = cursor.integer(),
                           .edges = copy(cursor.array<double>()),
                           .coefficients = copy(cursor.array<double>()),
                           .functions = static_cast<int>(cursor.integer(1, 1 << 20)),
                           .degree = static_cast<int>(cursor.integer(0, 1 << 10)),
                           .start = cursor.integer(),
                           .moves = cursor.integer(),
                           .around = cursor.integer()};
        check_window(window);
        return window;
    }

    Names read_names() {
        ValueRule rule{.column = column(), .is_number = false};
        rule.spelled = static_cast<Spelled>(cursor.integer(0, 3));
        rule.unseen = static_cast<Unseen>(cursor.integer(0, 3));
        rule.first_unseen = cursor.integer(0, MAX_FEATURES);
        rule.buckets = cursor.integer(1, MAX_FEATURES);
        const std::int64_t first = cursor.integer(), missing = cursor.integer();
        rule.missing = missing >= 0;
        const auto offsets = cursor.array<std::int64_t>();
        const auto text = cursor.array<char>();
        if (offsets.empty() || static_cast<std::int64_t>(offsets.size()) > MAX_NAMES) damaged("names without offsets");
        const auto n = static_cast<std::int64_t>(offsets.size()) - 1;
        const Strings strings{offsets.data(), text.data(), text.data() + text.size(), n};
        if (!strings.are_inside(static_cast<std::int64_t>(text.size()))) damaged("names are not inside their text");
        // A name that begins in the middle of a character is none.
        bool begin = is_utf8({text.data(), text.size()});
        for (const std::int64_t at : offsets)
            begin &=
                at == static_cast<std::int64_t>(text.size()) || (text[static_cast<std::size_t>(at)] & 0xC0) != 0x80;
        if (!begin) damaged("a name is not UTF-8");
        const auto slots = read_slots(cursor, n);
        // Other spellings, hashes and errors are decided where a name is not found.
        const bool is_text = rule.spelled == Spelled::text;
        const std::int64_t unseen = is_text && rule.unseen == Unseen::rare      ? rule.first_unseen
                                    : is_text && rule.unseen == Unseen::neutral ? NO_FEATURE
                                                                                : ASK;
        Names names{StringTable(strings, slots.data(), slots.size()), n, first, unseen, missing};
        check_names(names);
        const std::int64_t n_unseen = rule.unseen == Unseen::rare ? 1 : rule.unseen == Unseen::hash ? rule.buckets : 0;
        end_feature = std::max(end_feature, n_unseen ? rule.first_unseen + n_unseen : 0);
        plan.values.push_back(std::move(rule));
        return names;
    }

    ListField read_list() {
        ListField field{read_names(), cursor.integer(), cursor.boolean(), cursor.boolean()};
        check_length(field.length);
        ValueRule& rule = plan.values.back();
        rule.has_separator = cursor.boolean();
        rule.separator = cursor.text();
        if (rule.has_separator && rule.separator.empty()) damaged("a separator is empty");
        return field;
    }

    CrossField read_cross() {
        CrossField field{.first = cursor.integer(), .n_cells = 1, .parts = {}, .sizes = {}, .cells = {}};
        const std::int64_t n_parts = cursor.integer(1, CrossField::MAX_PARTS);
        for (std::int64_t p = 0; p < n_parts; ++p) {
            if (cursor.integer(SFM_NUMERICAL, SFM_CATEGORICAL) == SFM_NUMERICAL) {
                field.parts.push_back(read_number());
                continue;
            }
            field.parts.push_back(CategoryField{read_names()});
            const Unseen unseen = plan.values.back().unseen;
            if (unseen == Unseen::rare || unseen == Unseen::hash) damaged("a part of a cross has unseen features");
        }
        const std::int64_t levels = cursor.integer(0, MAX_FEATURES), n_numbers = field.n_numbers();
        field.sizes = copy(cursor.array<std::int64_t>());
        if (levels < 1 || levels > (1 << 16) || static_cast<std::int64_t>(field.sizes.size()) != levels * n_numbers)
            damaged("sizes of a cross");
        for (const std::int64_t size : field.sizes)
            if (size < 0 || size > MAX_FEATURES) damaged("sizes of a cross");
        const std::int64_t n_names = n_parts - n_numbers, buckets = cursor.integer(0, MAX_FEATURES);
        const auto multipliers = cursor.array<std::int64_t>();
        const std::int64_t prime = cursor.integer();
        const auto features = cursor.array<std::int32_t>();
        const std::int64_t n_cells = n_names ? static_cast<std::int64_t>(features.size()) / n_names : 0;
        const auto places = read_slots(cursor, n_cells);
        if (n_names && buckets) {
            field.cells = Buckets{buckets, copy(multipliers), prime};
            field.n_cells = buckets;
        } else if (n_names) {
            if (static_cast<std::int64_t>(features.size()) != n_cells * n_names) damaged("cells of a cross");
            field.cells = Cells(features, n_names, places);
            field.n_cells = n_cells;
        }
        check_cross(field, levels, n_numbers);
        return field;
    }

    void read_offset(const Image& image) {
        plan.values.push_back({.column = column(), .is_number = true});
        const auto kind = static_cast<ScoreOffset::Kind>(cursor.integer(ScoreOffset::plain, ScoreOffset::logarithm));
        const double unit = cursor.number(), largest = cursor.number();
        if (!(unit > 0.0 && largest > 0.0) || plan.outputs.size() != 1) damaged("an offset without a unit");
        if (!image.section(Section::index).empty()) damaged("an index of a model with an offset");
        plan.encoder.add(ScoreOffset{kind, unit, largest});
    }

    void read_params(const Image& image) {
        const std::array links{"score", "logistic", "identity", "log", "softmax"};  // in the order of Link
        const auto link = std::find(links.begin(), links.end(), plan.link);
        if (link == links.end()) damaged("its link is unknown");
        const std::int64_t n_outputs = cursor.integer(1, MAX_OUTPUTS);
        const std::int64_t k = cursor.integer(4, 1 << 16), width = cursor.integer(4, 1 << 28);
        const std::int64_t members = cursor.integer(1, 1 << 16), order = cursor.integer(2, 1 << 16);
        const std::int64_t n_features = cursor.integer(1, MAX_FEATURES);
        const double center = cursor.number(), scale = cursor.number();
        const auto factors = image.numbers<float>(Section::factors), linear = image.numbers<float>(Section::linear);
        const auto between = image.numbers<float>(Section::between), bias = image.numbers<float>(Section::bias);
        const auto has = [&](std::span<const float> numbers, std::int64_t each) {
            const auto n = static_cast<std::int64_t>(numbers.size());
            return n % n_outputs == 0 && n / n_outputs % each == 0 && n / n_outputs / each == n_features;
        };
        if (!has(factors, width) || !has(linear, 1)) damaged("parameters of other features");
        if (static_cast<std::int64_t>(bias.size()) != n_outputs || between.size() % bias.size())
            damaged("parameters of other outputs");
        if ((n_outputs > 1) != (plan.link == "softmax")) damaged("a softmax has several outputs");
        const auto n_between = static_cast<std::int64_t>(between.size()) / n_outputs;
        for (std::int64_t c = 0; c < n_outputs; ++c)
            plan.outputs.emplace_back(
                RowParams{.model = scored_as(model_of(plan.model)),
                          .k = k,
                          .width = width,
                          .order = order,
                          .members = members,
                          .n_fields = plan.encoder.n_fields(),
                          .n_features = n_features,
                          .factors = factors.data() + c * n_features * width,
                          .linear = linear.data() + c * n_features,
                          .between = between.data() + c * n_between,
                          .bias = static_cast<double>(bias[static_cast<std::size_t>(c)]),
                          .prediction = {static_cast<Link>(link - links.begin()), center, scale}});
        const RowScorer& scorer = plan.outputs.front();
        check_params(scorer.params, n_between, std::max(end_feature, plan.encoder.end_feature()));
        const std::int64_t most = plan.encoder.max_terms();
        // 8 rows at once, and vectors of one
        if (most > MAX_WORKSPACE / 64 || most > MAX_WORKSPACE / (k * (plan.encoder.n_fields() + 1)) ||
            k * (order + 1) > MAX_WORKSPACE)
            damaged("a row has too many terms");
        plan.n_features = n_features;
    }

    Plan& plan;
    Cursor cursor;
    bool has_limits;
    std::int64_t end_feature = 0;
};

}  // namespace

Plan::Plan(const Image& image) { Parser(*this, image).read(image); }

}  // namespace splinefm::c
