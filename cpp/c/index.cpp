#include "c/index.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "scorer/spelling.hpp"

namespace splinefm::c {
namespace {

constexpr std::int64_t MAX_ITEMS = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t MAX_WORKSPACE = std::int64_t{1} << 28;  // numbers
constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Whether there are a · b · c of something; none of them is negative.
bool are(std::size_t size, std::int64_t a, std::int64_t b, std::int64_t c) {
    const auto n = static_cast<std::int64_t>(size);
    if (a == 0 || b == 0 || c == 0) return n == 0;
    return n % a == 0 && n / a % b == 0 && n / a / b == c;
}

std::int64_t read_panel(Cursor& cursor) {
    const std::int64_t size = cursor.integer(STEP, WIDEST);
    if (size % STEP) damaged("a panel of items has another size");
    return size;
}

std::span<const MapBlock> read_blocks(Cursor& cursor) {
    const auto numbers = cursor.array<std::int64_t>();
    if (numbers.size() % 5) damaged("a map is cut short");
    return {reinterpret_cast<const MapBlock*>(numbers.data()), numbers.size() / 5};
}

LinearMap read_map(Cursor& cursor, std::int64_t n_in, std::int64_t n_out) {
    const auto blocks = read_blocks(cursor);
    return {blocks, cursor.array<double>(), n_in, n_out};
}

}  // namespace

Index::Index(const Image& image, const Plan& plan) {
    if (plan.outputs.size() > 1) damaged("an index of a model of several classes");
    Cursor cursor(image, Section::index, Section::index_tables);
    read_fields(cursor, plan);
    n = cursor.integer(0, MAX_ITEMS);
    panel = read_panel(cursor);
    offsets = image.numbers<float>(Section::offsets);
    check_offsets();
    read_ids(cursor, image);
    read_groups(cursor, image);
    const RowParams& params = plan.outputs.front().params;
    const std::int64_t products = cursor.integer(0, params.order);
    const std::int64_t most = plan.encoder.max_terms() + params.n_fields + products + params.order + 4;
    if (params.width > MAX_WORKSPACE / most) damaged("a context has too many terms");
    const std::int64_t length = cursor.integer(0, params.width * (params.n_fields + params.order));
    std::vector<char> of_context(of_items.size());
    std::transform(of_items.begin(), of_items.end(), of_context.begin(), [](char own) { return !own; });
    const auto blocks = read_blocks(cursor);
    side.emplace(params, of_context, products, blocks, cursor.array<double>(), length);
    cursor.boolean() ? read_effects(cursor, image, params) : read_vectors(cursor, image);
    if (!cursor.at_end()) damaged("the description of its index has a rest");
}

void Index::read_fields(Cursor& cursor, const Plan& plan) {
    item_columns.resize(plan.columns.size());
    for (const FieldInfo& info : plan.fields) {
        of_items.push_back(cursor.boolean());
        for (const std::int64_t column : info.columns)
            if (of_items.back()) item_columns[static_cast<std::size_t>(column)] = 1;
    }
}

void Index::check_offsets() const {
    if (!are(offsets.size(), n_panels(), panel, 1)) damaged("there are offsets of other items");
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        const bool is_item = static_cast<std::int64_t>(i) < n;  // the loops read some beyond the last
        if (is_item ? !(std::abs(offsets[i]) < INFINITE) : offsets[i] != -INFINITE) damaged("an offset is not finite");
    }
}

void Index::read_ids(Cursor& cursor, const Image& image) {
    has_text_ids = cursor.boolean();
    id_words = cursor.integer(1, has_text_ids ? 1 << 20 : 1);
    ids = image.numbers<std::uint64_t>(Section::ids);
    if (!are(ids.size(), n, id_words, 1)) damaged("there are ids of other items");
    const auto size = static_cast<std::size_t>(id_words) * 8;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint64_t* const own = ids.data() + i * id_words;
        if (has_text_ids) {
            const sfm_value text = id(i);
            const auto* const bytes = reinterpret_cast<const char*>(own);
            if (std::any_of(bytes + text.size, bytes + size, [](char byte) { return byte != 0; }) ||
                !is_utf8({text.of.text, text.size}))
                damaged("an id is not UTF-8");
        }
        if (i == 0) continue;
        const std::uint64_t* const before = own - id_words;
        const bool ascends = has_text_ids ? std::memcmp(before, own, size) < 0
                                          : static_cast<std::int64_t>(*before) < static_cast<std::int64_t>(*own);
        if (!ascends) damaged("ids do not ascend");
    }
}

void Index::read_groups(Cursor& cursor, const Image& image) {
    has_groups = cursor.boolean();
    const std::int64_t n_groups = cursor.count();
    for (std::int64_t i = 0; i < n_groups; ++i) group_names.push_back(cursor.text());
    codes = image.numbers<std::int32_t>(Section::groups);
    if (!are(codes.size(), has_groups ? n : 0, 1, 1)) damaged("there are groups of other items");
}

void Index::read_vectors(Cursor& cursor, const Image& image) {
    constexpr std::size_t SIZES[] = {sizeof(float), sizeof(std::uint16_t), sizeof(std::int8_t)};
    const std::int64_t storage = cursor.integer(0, 2), length = side->length();
    const auto panels = image.section(Section::panels);
    const auto scales = image.numbers<float>(Section::scales);
    const std::size_t each = SIZES[storage];
    if (panels.size() % each || !are(panels.size() / each, n_panels(), length, panel))
        damaged("there are vectors of other items");
    if (storage == 2 ? scales.size() != offsets.size() : !scales.empty()) damaged("there are scales of other items");
    items.emplace(VectorItems{.storage = static_cast<Storage>(storage),
                              .panels = panels.data(),
                              .n_panels = n_panels(),
                              .length = length,
                              .size = panel,
                              .scales = storage == 2 ? scales.data() : nullptr,
                              .offsets = offsets.data(),
                              .n_rows = up_to(n, STEP)});
}

void Index::read_effects(Cursor& cursor, const Image& image, const RowParams& params) {
    auto features = image.numbers<float>(Section::features);
    for (const char own : of_items) {
        if (!own) continue;
        const std::int64_t rows = cursor.integer(1, params.n_features + 1), size = read_panel(cursor);
        const std::int64_t length = cursor.integer(0, params.width), n_panels = (rows + size - 1) / size;
        const auto left = static_cast<std::int64_t>(features.size());
        if (length && n_panels * size > left / length) damaged("features of items are cut short");
        tables.push_back({.rows = {.storage = Storage::float32,
                                   .panels = features.data(),
                                   .n_panels = n_panels,
                                   .length = length,
                                   .size = size,
                                   .scales = nullptr,
                                   .offsets = nullptr,
                                   .n_rows = up_to(rows, STEP)},
                          .queries = read_map(cursor, side->length(), length),
                          .first = n_effects});
        features = features.subspan(static_cast<std::size_t>(n_panels * size * length));
        n_effects += up_to(rows, STEP);
        if (n_effects > MAX_WORKSPACE) damaged("items have too many features");
    }
    if (!features.empty()) damaged("there are features of no field");
    const auto numbers = cursor.array<std::int64_t>();
    if (numbers.size() % 4) damaged("windows are cut short");
    const std::span windows{reinterpret_cast<const Window*>(numbers.data()), numbers.size() / 4};
    const std::int64_t n_weights = cursor.integer(0, 1 << 26), n_windows = static_cast<std::int64_t>(windows.size());
    const auto starts = image.numbers<std::int32_t>(Section::panels);
    const auto weights = image.numbers<float>(Section::weights);
    if (!are(starts.size(), n_panels(), n_windows, panel) || !are(weights.size(), n_panels(), n_weights, panel))
        damaged("there are features of other items");
    for (const Window& window : windows)
        if (window.first < 0 || window.width < 1 || window.last < 0 || window.first > n_effects ||
            window.width > n_effects - window.first || window.last > n_effects - window.first - window.width)
            damaged("an item has features that do not exist");
    items.emplace(EffectItems{.starts = starts.data(),
                              .weights = weights.data(),
                              .windows = windows.data(),
                              .n_panels = n_panels(),
                              .n_windows = n_windows,
                              .n_weights = n_weights,
                              .size = panel,
                              .offsets = offsets.data(),
                              .n_rows = up_to(n, STEP)});
}

sfm_value Index::id(std::int64_t item) const {
    const std::uint64_t* const own = ids.data() + item * id_words;
    if (!has_text_ids) return sfm_integer(static_cast<std::int64_t>(*own));
    const auto* const text = reinterpret_cast<const char*>(own);
    return sfm_text(text, ::strnlen(text, static_cast<std::size_t>(id_words) * 8));
}

std::int64_t Index::find(const sfm_value& wanted) const {
    if (wanted.kind != (has_text_ids ? SFM_TEXT : SFM_INTEGER) ||
        (wanted.kind == SFM_TEXT && wanted.size && !wanted.of.text))
        throw Problem(SFM_ERROR_VALUE, has_text_ids ? "ids of the index are texts; give SFM_TEXT"
                                                    : "ids of the index are integers; give SFM_INTEGER");
    std::int64_t low = 0, high = n;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        const sfm_value at = id(middle);
        int order;  // of the id there and the wanted one
        if (has_text_ids)
            order = std::string_view(at.of.text, at.size)
                        .compare({wanted.size ? wanted.of.text : "", static_cast<std::size_t>(wanted.size)});
        else
            order = at.of.integer < wanted.of.integer ? -1 : at.of.integer > wanted.of.integer;
        if (order == 0) return middle;
        (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
    }
    return -1;
}

// Which items may be found; `visit` are the panels to look at.
Filter Index::select(const sfm_filter& filter, Search& work, Visit& visit) const {
    Filter only{.keep = nullptr, .codes = codes.data(), .wanted = nullptr, .n_codes = 0, .n_wanted = 0};
    const auto require = [](bool holds, const char* message) {
        if (!holds) throw Problem(SFM_ERROR_ARGUMENT, message);
    };
    require(filter.allowed || !filter.n_allowed, "allowed is NULL");
    require(filter.excluded || !filter.n_excluded, "excluded is NULL");
    require(filter.groups || !filter.n_groups, "groups is NULL");
    if (filter.allowed || filter.n_excluded) {
        std::uint8_t* const keep = room(work.keep, up_to(n, STEP));
        std::fill(keep, keep + up_to(n, STEP), filter.allowed ? 0 : 1);
        for (std::size_t i = 0; filter.allowed && i < filter.n_allowed; ++i)
            if (const std::int64_t item = find(filter.allowed[i]); item >= 0) keep[item] = 1;
        for (std::size_t i = 0; i < filter.n_excluded; ++i)
            if (const std::int64_t item = find(filter.excluded[i]); item >= 0) keep[item] = 0;
        only.keep = keep;
        if (filter.allowed) {
            std::int64_t* const panels = work.visited.data();
            visit.n = 0;
            for (std::int64_t p = 0; p < n_panels(); ++p) {
                const std::uint8_t* const first = keep + p * panel;
                const std::int64_t width = std::min(panel, up_to(n, STEP) - p * panel);
                if (std::memchr(first, 1, static_cast<std::size_t>(width))) panels[visit.n++] = p;
            }
        }
    }
    if (filter.groups) {
        require(has_groups, "the index has no groups; rebuild it with groups");
        const auto n_groups = static_cast<std::int64_t>(group_names.size());
        std::uint8_t* const wanted = room(work.wanted, n_groups + 1);
        std::fill(wanted, wanted + n_groups + 1, 0);
        for (std::size_t i = 0; i < filter.n_groups; ++i) {
            const sfm_value& group = filter.groups[i];
            require(group.kind == SFM_TEXT && (group.of.text || !group.size), "groups must be SFM_TEXT");
            const std::string_view name(group.size ? group.of.text : "", static_cast<std::size_t>(group.size));
            const auto found = std::find(group_names.begin(), group_names.end(), name);
            if (found == group_names.end())
                throw Problem(SFM_ERROR_VALUE, "the index has no group '" + std::string(name.substr(0, 200)) + "'");
            wanted[found - group_names.begin()] = 1;
        }
        only.wanted = wanted;
        only.n_wanted = n_groups;
        only.n_codes = static_cast<std::int64_t>(codes.size());
    }
    return only;
}

// What items are compared with: the query of a context, or the effects of all features.
const float* Index::make_request(const Terms& context, Search& work, float* constant) const {
    float* const query = room(work.query, side->length());
    if (!(*side)(context, work.context, query, constant))
        throw Problem(
            SFM_ERROR_VALUE,
            "the vector of a context is not finite: the model's parameters contain NaN or infinity; refit it");
    if (std::holds_alternative<VectorItems>(items->items())) return query;
    float* const effects = room(work.effects, n_effects);
    for (const Table& table : tables) {
        float* const part = room(work.unit, table.queries.n_out());
        map_query(table.queries, query, side->length(), work.context, part);
        const FlushDenormals flushed;
        kernels().rank->row_effects(table.rows, part, 1, effects + table.first, room(work.products, table.rows.size));
    }
    return effects;
}

std::int64_t Index::top_k(const Terms& context, std::int64_t k, const sfm_filter* filter, Search& work, sfm_value* best,
                          float* scores) const {
    k = std::min(k, n);
    Visit visit = visit_all(n_panels(), work);
    const Filter only = filter ? select(*filter, work, visit) : Filter{};
    float constant = 0.0f;
    const float* const request = make_request(context, work, &constant);
    if (k == 0) return 0;
    std::int64_t* const rows = room(work.found, k);
    const std::int64_t n_found =
        std::visit([&](const auto& own) { return search(own, visit, request, constant, only, k, work, rows, scores); },
                   items->items());
    for (std::int64_t i = 0; i < n_found; ++i) best[i] = id(rows[i]);
    return n_found;
}

}  // namespace splinefm::c
