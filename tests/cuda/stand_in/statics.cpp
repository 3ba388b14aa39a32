/* statics.cpp - the __shared__ arrays of a kernel, which the emulator compiles
 * as static thread_local: where they are and how large, from the symbols of the
 * program, so that they can be filled with NaN before each block.
 *
 * Source: System V ABI, "Symbol Table"; Itanium C++ ABI 5.1.6, local names:
 * what is called x in a function _ZF is _ZZFE1x. */
#include "tests/cuda/stand_in/internal.h"

#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace standin
{
namespace
{
struct symbols { /* of one file, by address */
    std::map<uint64_t, std::string> functions;
    std::multimap<std::string, std::pair<uint64_t, size_t>> statics; /* _ZF */
};

/* The kernel's part of _ZZ<F>E<name>; "" when it is no such name. Names of
 * arrays have no E after a digit, so the last "E<digit>" separates. */
std::string function_of(const char *name)
{
    if (strncmp(name, "_ZZ", 3))
        return "";
    std::string text(name);
    for (size_t i = text.size() - 1; i > 3; i--)
        if (text[i - 1] == 'E' && text[i] >= '1' && text[i] <= '9') {
            size_t length = 0, at = i;
            while (at < text.size() && text[at] >= '0' && text[at] <= '9')
                length = length * 10 + (size_t)(text[at++] - '0');
            if (at + length <= text.size())
                return "_Z" + text.substr(3, i - 1 - 3);
        }
    return "";
}

void read_symbols(const char *file, struct symbols *out)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) || info.st_size <= (off_t)sizeof(Elf64_Ehdr))
        return;
    const char *image = static_cast<const char *>(
            mmap(nullptr, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0));
    close(fd);
    if (image == MAP_FAILED)
        return;
    const Elf64_Ehdr *head = reinterpret_cast<const Elf64_Ehdr *>(image);
    const Elf64_Shdr *sections =
            reinterpret_cast<const Elf64_Shdr *>(image + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr &s = sections[i];
        if (s.sh_type != SHT_SYMTAB)
            continue;
        const char *names = image + sections[s.sh_link].sh_offset;
        const Elf64_Sym *symbol =
                reinterpret_cast<const Elf64_Sym *>(image + s.sh_offset);
        for (size_t j = 0; j < s.sh_size / sizeof *symbol; j++, symbol++) {
            const char *name = names + symbol->st_name;
            int type = ELF64_ST_TYPE(symbol->st_info);
            if (type == STT_FUNC && symbol->st_value)
                out->functions[symbol->st_value] = name;
            std::string of = type == STT_TLS ? function_of(name) : "";
            if (!of.empty())
                out->statics.emplace(
                        of, std::make_pair(symbol->st_value, symbol->st_size));
        }
    }
    munmap(const_cast<char *>(image), (size_t)info.st_size);
}

struct cache {
    std::mutex mutex;
    std::map<std::string, struct symbols> files;
    std::map<const void *, struct static_shared> kernels;
};

struct static_shared search(const void *kernel)
{
    struct static_shared found = {};
    Dl_info info;
    struct link_map *map;
    if (!dladdr1(kernel, &info, (void **)&map, RTLD_DL_LINKMAP))
        return found;
    std::string file = *map->l_name ? map->l_name : "/proc/self/exe";
    auto &files = only<struct cache>().files;
    auto loaded = files.find(file);
    if (loaded == files.end()) {
        loaded = files.emplace(file, symbols()).first;
        read_symbols(file.c_str(), &loaded->second);
    }
    const struct symbols &s = loaded->second;
    found.module = map->l_addr;
    auto function = s.functions.find((uint64_t)kernel - map->l_addr);
    if (function == s.functions.end())
        return found;
    auto range = s.statics.equal_range(function->second);
    for (auto it = range.first; it != range.second; ++it) {
        found.parts.push_back(it->second);
        found.bytes += it->second.second;
    }
    return found;
}

int find_tls(struct dl_phdr_info *info, size_t bytes, void *ctx)
{
    struct static_shared *shared = static_cast<struct static_shared *>(ctx);
    if (info->dlpi_addr != shared->module)
        return 0;
    shared->base = static_cast<char *>(info->dlpi_tls_data);
    return 1;
}
} // namespace

const struct static_shared *static_shared_of(const void *kernel)
{
    struct unseen unseen;
    locked<struct cache> cache;
    auto it = cache->kernels.find(kernel);
    if (it == cache->kernels.end())
        it = cache->kernels.emplace(kernel, search(kernel)).first;
    return &it->second;
}

struct static_shared static_shared_here(const void *kernel)
{
    struct static_shared here = *static_shared_of(kernel);
    if (!here.parts.empty())
        dl_iterate_phdr(find_tls, &here);
    return here;
}
} // namespace standin
