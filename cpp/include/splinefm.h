/* The C interface of splinefm's scorer: scores of rows of raw values, without Python.
 *
 * `fitted.export_scorer("m.sfs")` (Python) or `splinefm export m.sfm --to scorer --out m.sfs` writes a scorer file,
 * which this library maps into memory: processes share one copy. Scores equal `fitted.scorer()`, to the bit.
 *
 *     sfm_scorer* scorer;
 *     sfm_error error;
 *     if (sfm_open("m.sfs", &scorer, &error)) { fprintf(stderr, "%s\n", error.message); exit(1); }
 *     sfm_value row[2] = {sfm_number(1.5), sfm_text("US", 2)};       // in the order of the columns
 *     double probability;
 *     sfm_predict(scorer, NULL, row, 1, &probability, &error);
 *     sfm_close(scorer);
 *
 * Threads: a scorer is never changed and serves any number of threads. A workspace serves one call at a time; with NULL
 * the scorer lends one. After the first calls nothing is allocated, except for messages of errors.
 *
 * Errors: functions return SFM_OK or an error code, and write a message to `error` unless that is NULL. Nothing is
 * thrown, and nothing is printed. After an error, outputs are undefined.
 *
 * Files: replace a scorer file by renaming another one over it, and open it again: a file that is overwritten in place
 * or cut short while it is mapped ends the process, as with every mapped file.
 */
#ifndef SPLINEFM_H
#define SPLINEFM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SFM_BUILDING)
#define SFM_API __attribute__((visibility("default")))
#else
#define SFM_API
#endif

/* Incremented when a function or struct changes; `sfm_abi_version` returns the version of the library. */
#define SFM_ABI_VERSION 1

/* Results of functions. */
enum {
    SFM_OK = 0,
    SFM_ERROR_FILE = 1,     /* the file cannot be read, is damaged, or of another version */
    SFM_ERROR_ARGUMENT = 2, /* an argument of a call is wrong */
    SFM_ERROR_VALUE = 3,    /* a column does not take a value: the message names both */
    SFM_ERROR_MEMORY = 4,
    SFM_ERROR_INTERNAL = 5
};

/* What went wrong in a call. */
typedef struct sfm_error {
    int32_t code;
    char message[508]; /* UTF-8, ends with a zero */
} sfm_error;

/* Kinds of values. Zero, which is what memory holds that was only cleared, is no value: an error, not a missing one. */
enum {
    SFM_ABSENT = 0,
    SFM_MISSING = 1,
    SFM_NUMBER = 2, /* NaN is a missing value */
    SFM_INTEGER = 3,
    SFM_BOOLEAN = 4, /* `integer` is 0 or 1 */
    SFM_TEXT = 5,    /* UTF-8, `size` bytes, not copied */
    SFM_LIST = 6     /* `size` values, for multi-valued fields: texts, or numbers */
};

/* One value of a row; 24 bytes on all machines with pointers of 64 bits. */
typedef struct sfm_value {
    int32_t kind;
    int32_t unused;
    uint64_t size;
    union {
        double number;
        int64_t integer;
        const char* text;
        const struct sfm_value* list;
    } of;
} sfm_value;

static inline sfm_value sfm_missing(void) {
    sfm_value value = {SFM_MISSING, 0, 0, {0}};
    return value;
}

static inline sfm_value sfm_number(double number) {
    sfm_value value = {SFM_NUMBER, 0, 0, {0}};
    value.of.number = number;
    return value;
}

static inline sfm_value sfm_integer(int64_t integer) {
    sfm_value value = {SFM_INTEGER, 0, 0, {0}};
    value.of.integer = integer;
    return value;
}

static inline sfm_value sfm_boolean(int boolean) {
    sfm_value value = {SFM_BOOLEAN, 0, 0, {0}};
    value.of.integer = boolean != 0;
    return value;
}

static inline sfm_value sfm_text(const char* text, size_t size) {
    sfm_value value = {SFM_TEXT, 0, size, {0}};
    value.of.text = text;
    return value;
}

static inline sfm_value sfm_list(const sfm_value* values, size_t size) {
    sfm_value value = {SFM_LIST, 0, size, {0}};
    value.of.list = values;
    return value;
}

typedef struct sfm_scorer sfm_scorer;
typedef struct sfm_workspace sfm_workspace;

SFM_API int32_t sfm_abi_version(void);
/* The instruction set in use, such as "avx2"; the environment variable SPLINEFM_ISA chooses another one. NULL before
 * the first scorer is opened. */
SFM_API const char* sfm_instruction_set(void);

/* Open a scorer file: map it, verify its checksums, and check that no value can lead out of it. */
SFM_API int32_t sfm_open(const char* path, sfm_scorer** scorer, sfm_error* error);
/* The same for a file in memory, which must begin at a multiple of 64 bytes and outlive the scorer. */
SFM_API int32_t sfm_open_memory(const void* bytes, size_t size, sfm_scorer** scorer, sfm_error* error);
/* Close a scorer, when no call uses it any longer. NULL is allowed. */
SFM_API void sfm_close(sfm_scorer* scorer);

/* The memory of calls of one thread at a time. It belongs to its scorer, and must be freed before that is closed. */
SFM_API int32_t sfm_workspace_new(const sfm_scorer* scorer, sfm_workspace** workspace, sfm_error* error);
SFM_API void sfm_workspace_free(sfm_workspace* workspace);

/* Columns: a row has a value for each, in this order. Several fields may read one column. Names end with a zero and
 * live as long as the scorer; NULL where there is no such column. */
SFM_API size_t sfm_n_columns(const sfm_scorer* scorer);
SFM_API const char* sfm_column_name(const sfm_scorer* scorer, size_t column);
/* The number of a column, or -1. */
SFM_API int64_t sfm_find_column(const sfm_scorer* scorer, const char* name);

/* Kinds of fields. */
enum {
    SFM_NUMERICAL = 0, /* numbers, integers, booleans; of dates: seconds since 1970 by the clock of the field's zone */
    SFM_CATEGORICAL = 1,  /* texts, integers, booleans, numbers */
    SFM_MULTI_VALUED = 2, /* lists of them; texts, if the field has a separator */
    SFM_CROSS = 3         /* the values of several columns */
};

typedef struct sfm_field {
    const char* name;
    const int64_t* columns; /* numbers of the columns that it reads */
    size_t n_columns;
    int32_t kind;
    int32_t missing;  /* whether missing values are taken by all its columns */
    const char* part; /* of dates: "trend", "hour", "weekday" or "yearday"; else NULL */
} sfm_field;

/* The number of the column that is added to the score, or whose logarithm is; -1 if the model has no offset. The column
 * is one of the row's columns; `*is_exposure` tells whether the logarithm is added. */
SFM_API int64_t sfm_offset_column(const sfm_scorer* scorer, int32_t* is_exposure);

/* Fields of the model. */
SFM_API size_t sfm_n_fields(const sfm_scorer* scorer);
SFM_API int32_t sfm_describe_field(const sfm_scorer* scorer, size_t field, sfm_field* described);

/* Numbers per row: one, or for more than two classes one for each. */
SFM_API size_t sfm_n_outputs(const sfm_scorer* scorer);
/* The label of a class as text; NULL if targets are numbers, or there is no such class. */
SFM_API const char* sfm_class_name(const sfm_scorer* scorer, size_t output);
SFM_API size_t sfm_n_classes(const sfm_scorer* scorer);
/* How predictions follow from scores: "logistic", "identity", "log", "softmax" or "score" (they are the scores). */
SFM_API const char* sfm_link(const sfm_scorer* scorer);
/* The model, such as "fwfm", and the version of splinefm that wrote the file. */
SFM_API const char* sfm_model(const sfm_scorer* scorer);
SFM_API const char* sfm_written_by(const sfm_scorer* scorer);

/* Raw scores, or predictions (probabilities, means, rates), of n rows of sfm_n_columns values each. `out` gets
 * sfm_n_outputs numbers for each row. A row with an error ends the call: the message tells its number. */
SFM_API int32_t sfm_score(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* rows, size_t n,
                          double* out, sfm_error* error);
SFM_API int32_t sfm_predict(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* rows, size_t n,
                            double* out, sfm_error* error);

/* Raw scores of one context with n items, equal to the scores of whole rows. `context` has sfm_n_columns values; in
 * the n_item_columns columns of items they are ignored, and replaced by the values of each item, in the order of
 * `item_columns`. What does not depend on the item is encoded once. */
SFM_API int32_t sfm_score_items(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* context,
                                const int64_t* item_columns, size_t n_item_columns, const sfm_value* items, size_t n,
                                double* out, sfm_error* error);

/* A catalog of items, prepared so that a context takes nanoseconds per item: what depends on the item alone is computed
 * once. Scores equal the scores of whole rows up to rounding, about 1e-6. A HigherOrderFM, several classes, and crosses
 * of items with contexts have no such form: use sfm_score_items.
 *
 * `values` has n_item_columns values for each of n items. The catalog belongs to its scorer, is never changed, and
 * serves any number of threads. */
typedef struct sfm_items sfm_items;
SFM_API int32_t sfm_items_new(const sfm_scorer* scorer, const int64_t* item_columns, size_t n_item_columns,
                              const sfm_value* values, size_t n, sfm_items** items, sfm_error* error);
/* Free a catalog, before its scorer is closed. NULL is allowed. */
SFM_API void sfm_items_free(sfm_items* items);
SFM_API size_t sfm_n_items(const sfm_items* items);

/* Raw scores of a context with all items. `context` has sfm_n_columns values; item columns are ignored. */
SFM_API int32_t sfm_items_score(const sfm_items* items, sfm_workspace* workspace, const sfm_value* context, float* out,
                                sfm_error* error);
/* The k best items for a context, or all if there are fewer: their numbers and raw scores, best first, and of equal
 * ones those with a lower number first. `n_found` tells how many. */
SFM_API int32_t sfm_items_top_k(const sfm_items* items, sfm_workspace* workspace, const sfm_value* context, size_t k,
                                int64_t* found, float* scores, size_t* n_found, sfm_error* error);

/* The index of a scorer file: items with ids that Python prepared, `fitted.export_scorer("m.sfs", index=index)`.
 * Results equal `index.top_k`, to the bit. Items are numbered in the order of their ids. */

/* Whether the file has an index. */
SFM_API int32_t sfm_has_index(const sfm_scorer* scorer);
SFM_API size_t sfm_index_size(const sfm_scorer* scorer);
/* Whether a column belongs to the items: a context has no value for it. */
SFM_API int32_t sfm_index_has_column(const sfm_scorer* scorer, size_t column);
/* The id of an item: SFM_INTEGER, or SFM_TEXT, which lives as long as the scorer and does not end with a zero. */
SFM_API int32_t sfm_index_id(const sfm_scorer* scorer, size_t item, sfm_value* id);
/* The number of the item with an id; -1 if there is none, or ids are of the other kind. */
SFM_API int64_t sfm_index_find(const sfm_scorer* scorer, const sfm_value* id);
/* Groups of items; NULL where there is no such group. */
SFM_API size_t sfm_index_n_groups(const sfm_scorer* scorer);
SFM_API const char* sfm_index_group_name(const sfm_scorer* scorer, size_t group);

/* Which items a search may find; memory that is cleared allows all. Ids that the index does not have are ignored. NULL
 * with a number that is not 0 is an error; a list of no ids is an address with the number 0. */
typedef struct sfm_filter {
    const sfm_value* allowed; /* ids: only these; NULL: all */
    size_t n_allowed;
    const sfm_value* excluded; /* ids: not these */
    size_t n_excluded;
    const sfm_value* groups; /* texts: items of these groups only; NULL: all */
    size_t n_groups;
} sfm_filter;

/* The k best items of the index for a context, or all if there are fewer: their ids and raw scores, best first, and of
 * equal ones by ascending id. `n_found` tells how many. `context` has sfm_n_columns values; item columns are
 * ignored. `filter` may be NULL. */
SFM_API int32_t sfm_index_top_k(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* context, size_t k,
                                const sfm_filter* filter, sfm_value* ids, float* scores, size_t* n_found,
                                sfm_error* error);

#ifdef __cplusplus
}
#endif

#endif
