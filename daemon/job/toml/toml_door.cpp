/* toml_door.cpp - see toml_door.h. Works with toml++ 3.3 and 3.4, always as
 * headers: one build of the library's code, with our limits in it. */
#include <stdexcept>

/* The library asserts what hostile text can make false ("[|a]"): an exception
 * here, and never an assumption of the optimizer, which it becomes with NDEBUG.
 */
#undef NDEBUG
#define TOML_ASSERT(expr)                                                      \
    do {                                                                       \
        if (!(expr))                                                           \
            throw std::logic_error("a character that cannot stand here");      \
    } while (false)

extern "C" {
#include "base/must.h"
}
#include "daemon/job/toml/toml_door.h"

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

/* Values within values: the library counts these itself. The parts of a dotted
 * key, each a table within the one before, it does not, and walks and destroys
 * its tree by recursion. It keeps the parts' positions in vectors, the only
 * ones of this type, so their allocator says how many parts a key may have: one
 * more is std::length_error, before a table is made of any. */
namespace toml
{
inline namespace v3
{
struct source_position;
}
} // namespace toml

template <> class std::allocator<toml::source_position>
{
  public:
    using value_type = toml::source_position;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;

    allocator() noexcept = default;
    template <typename T> allocator(const std::allocator<T> &) noexcept
    {
    }
    value_type *allocate(size_type count);
    void deallocate(value_type *from, size_type) noexcept
    {
        ::operator delete(from);
    }
    size_type max_size() const noexcept
    {
        return TOML_MAX_DEPTH;
    }
    template <typename T, typename... Args>
    void construct(T *at, Args &&...args)
    {
        ::new (static_cast<void *>(at)) T(std::forward<Args>(args)...);
    }
    template <typename T> void destroy(T *at) noexcept
    {
        at->~T();
    }
    friend bool operator==(const allocator &, const allocator &) noexcept
    {
        return true;
    }
    friend bool operator!=(const allocator &, const allocator &) noexcept
    {
        return false;
    }
};

#define TOML_MAX_NESTED_VALUES 64
static_assert(TOML_MAX_NESTED_VALUES == TOML_MAX_DEPTH);
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY       1
#define TOML_SHARED_LIB        0
#define TOML_EXCEPTIONS        1
#define TOML_ENABLE_FORMATTERS 0
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate" /* in noexcept functions it ends  \
                                              */
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

toml::source_position *std::allocator<toml::source_position>::allocate(
        size_type count)
{
    return static_cast<value_type *>(
            ::operator new(count * sizeof(value_type)));
}

namespace
{

constexpr char too_deep[] = "nested more than 64 levels deep";

/* --- the library's tree into ours --- */

struct refused { /* thrown where toml++ accepts what we do not */
    const char *what;
    toml::source_position at;
};

char *copy_text(std::string_view text, toml::source_position at)
{
    if (text.find('\0') != text.npos)
        throw refused{"a NUL character (\\u0000) cannot stand here", at};
    char *copy = static_cast<char *>(zd_must(std::malloc(text.size() + 1)));
    std::memcpy(copy, text.data(), text.size());
    copy[text.size()] = '\0';
    return copy;
}

toml_place place_of(
        const toml_source *source, const toml::source_region &region)
{
    toml_place place{};
    place.source = source;
    place.line = static_cast<int>(region.begin.line);
    place.column = static_cast<int>(region.begin.column);
    place.width = 1;
    if (region.end.line == region.begin.line &&
        region.end.column > region.begin.column)
        place.width = static_cast<int>(region.end.column - region.begin.column);
    return place;
}

/* Attached before it is filled: whatever is thrown later, the root frees all.
 */
toml_node *append(toml_node *parent)
{
    auto *node = static_cast<toml_node *>(
            zd_must(std::calloc(1, sizeof(toml_node))));
    parent->items[parent->count++] = node;
    return node;
}

void reserve(toml_node *node, size_t count)
{
    node->items = static_cast<toml_node **>(
            zd_must(std::calloc(count ? count : 1, sizeof *node->items)));
}

void convert(
        const toml_source *source, const toml::node &from, int depth,
        toml_node *to);

void convert_table(
        const toml_source *source, const toml::table &from, int depth,
        toml_node *to)
{
    to->kind = TOML_TABLE;
    reserve(to, from.size());
    for (auto &&[key, value] : from) {
        toml_node *item = append(to);
        item->key = copy_text(key.str(), key.source().begin);
        item->key_place = place_of(source, key.source());
        convert(source, value, depth + 1, item);
    }
    /* toml++ sorts by name; people read from top to bottom */
    std::stable_sort(
            to->items, to->items + to->count,
            [](const toml_node *a, const toml_node *b) {
                if (a->key_place.line != b->key_place.line)
                    return a->key_place.line < b->key_place.line;
                return a->key_place.column < b->key_place.column;
            });
}

void convert(
        const toml_source *source, const toml::node &from, int depth,
        toml_node *to)
{
    if (depth > TOML_MAX_DEPTH)
        throw refused{too_deep, from.source().begin};
    to->place = place_of(source, from.source());
    if (!to->key)
        to->key_place = to->place;
    if (auto *table = from.as_table()) {
        convert_table(source, *table, depth, to);
    } else if (auto *array = from.as_array()) {
        to->kind = TOML_ARRAY;
        reserve(to, array->size());
        for (auto &&item : *array)
            convert(source, item, depth + 1, append(to));
    } else if (auto *string = from.as_string()) {
        to->kind = TOML_STRING;
        to->string = copy_text(string->get(), from.source().begin);
    } else if (auto *integer = from.as_integer()) {
        to->kind = TOML_INTEGER;
        to->integer = integer->get();
    } else if (auto *real = from.as_floating_point()) {
        to->kind = TOML_REAL;
        to->real = real->get();
    } else if (auto *boolean = from.as_boolean()) {
        to->kind = TOML_BOOL;
        to->boolean = boolean->get();
    } else {
        to->kind = TOML_DATETIME;
    }
}

void set_error(toml_error *error, std::string_view what, int line, int column)
{
    const std::string_view prefix = "Error while parsing ";
    const char *lead = "";
    if (what.substr(0, prefix.size()) == prefix) {
        what.remove_prefix(prefix.size());
        lead = "in ";
    }
    size_t room = sizeof error->what - 4;
    std::snprintf(
            error->what, sizeof error->what, "%s%.*s", lead,
            static_cast<int>(std::min(what.size(), room)), what.data());
    error->line = line;
    error->column = column;
}

} // namespace

extern "C" enum zd_status toml_parse(
        const struct toml_source *source, struct toml_error *error,
        struct toml_node **root_out)
{
    std::string_view text(source->text, source->bytes);
    enum zd_status status = ZD_ERR_CONFIG;
    toml_node *root = nullptr;
    /* the library asks for memory in places that may not throw as well */
    std::new_handler before = std::set_new_handler(zd_out_of_memory);
    try {
        toml::table table = toml::parse(text, std::string_view(source->name));
        root = static_cast<toml_node *>(zd_must(std::calloc(1, sizeof *root)));
        convert(source, table, 0, root);
        status = ZD_OK;
    } catch (const toml::parse_error &e) {
        bool is_deep =
                e.description().find("MAX_NESTED") != std::string_view::npos;
        set_error(
                error, is_deep ? too_deep : e.description(),
                static_cast<int>(e.source().begin.line),
                static_cast<int>(e.source().begin.column));
    } catch (const refused &e) {
        set_error(
                error, e.what, static_cast<int>(e.at.line),
                static_cast<int>(e.at.column));
    } catch (const std::length_error &) {
        set_error(error, too_deep, 0, 0);
    } catch (const std::exception &e) {
        set_error(error, e.what(), 0, 0);
    }
    std::set_new_handler(before);
    if (status == ZD_OK)
        *root_out = root;
    else
        toml_free(root);
    return status;
}
