/* Reads an ELF file that may be damaged: every offset is compared with the size
 * of the file before anything is read there. */
#include "unit.h"

#include <string.h>

/* 1 when [offset, offset + size) lies in the file. */
static int inside(const kgen__elf *elf, uint64_t offset, uint64_t size) {
    return offset <= elf->size && size <= elf->size - offset;
}

static int read_at(const kgen__elf *elf, uint64_t offset, void *out, size_t size) {
    if (!inside(elf, offset, size)) return 0;
    memcpy(out, elf->data + offset, size);
    return 1;
}

/* A string of a table, only if it ends inside it. */
static const char *string_at(const uint8_t *table, uint64_t size, uint64_t offset) {
    if (!table || offset >= size || !memchr(table + offset, 0, size - offset)) return NULL;
    return (const char *)table + offset;
}

int kgen__elf_open(kgen__elf *out, const void *data, size_t size) {
    *out = (kgen__elf){.data = data, .size = size};
    if (!data || !read_at(out, 0, &out->header, sizeof out->header)) return 0;
    const unsigned char *ident = out->header.e_ident;
    return memcmp(ident, ELFMAG, SELFMAG) == 0 && ident[EI_CLASS] == ELFCLASS64 &&
           ident[EI_DATA] == ELFDATA2LSB;
}

static int section_header(const kgen__elf *elf, unsigned index, Elf64_Shdr *out,
                          const uint8_t **data) {
    if (index >= elf->header.e_shnum || elf->header.e_shentsize != sizeof *out) return 0;
    if (elf->header.e_shoff > elf->size) return 0;
    if (!read_at(elf, elf->header.e_shoff + (uint64_t)index * sizeof *out, out, sizeof *out))
        return 0;
    *data = NULL;
    if (out->sh_type == SHT_NOBITS || out->sh_type == SHT_NULL) return 1;
    if (!inside(elf, out->sh_offset, out->sh_size)) return 0;
    *data = elf->data + out->sh_offset;
    return 1;
}

static int section_at(const kgen__elf *elf, unsigned index, kgen__section *out) {
    Elf64_Shdr names;
    const uint8_t *table;
    if (!section_header(elf, index, &out->header, &out->data)) return 0;
    out->name = NULL;
    if (section_header(elf, elf->header.e_shstrndx, &names, &table))
        out->name = string_at(table, names.sh_size, out->header.sh_name);
    if (!out->name) out->name = "";
    return 1;
}

int kgen__elf_section_named(const kgen__elf *elf, const char *name, kgen__section *out) {
    for (unsigned i = 0; i < elf->header.e_shnum; i++)
        if (section_at(elf, i, out) && strcmp(out->name, name) == 0) return 1;
    return 0;
}

static int symbol_in(const kgen__elf *elf, const kgen__section *table, const char *name,
                     Elf64_Sym *out, unsigned *index) {
    Elf64_Shdr strings;
    const uint8_t *text;
    if (!table->data || !section_header(elf, table->header.sh_link, &strings, &text)) return 0;
    uint64_t count = table->header.sh_size / sizeof *out;
    for (uint64_t i = 0; i < count; i++) {
        memcpy(out, table->data + i * sizeof *out, sizeof *out);
        const char *found = string_at(text, strings.sh_size, out->st_name);
        if (!found || strcmp(found, name) != 0) continue;
        *index = (unsigned)i;
        return 1;
    }
    return 0;
}

int kgen__elf_symbol(const kgen__elf *elf, const char *name, Elf64_Sym *out, unsigned *index) {
    kgen__section s;
    for (unsigned i = 0; i < elf->header.e_shnum; i++) {
        if (!section_at(elf, i, &s)) continue;
        if (s.header.sh_type != SHT_DYNSYM && s.header.sh_type != SHT_SYMTAB) continue;
        if (symbol_in(elf, &s, name, out, index)) return 1;
    }
    return 0;
}

static uint64_t align4(uint64_t n) { return (n + 3) & ~(uint64_t)3; }

static int note_in(const kgen__elf *elf, uint64_t at, uint64_t end, const char *owner,
                   uint32_t type, const uint8_t **desc, size_t *size) {
    Elf64_Nhdr note;
    while (at < end && end - at >= sizeof note && read_at(elf, at, &note, sizeof note)) {
        uint64_t name = at + sizeof note;
        uint64_t body = name + align4(note.n_namesz);
        if (!inside(elf, name, note.n_namesz) || !inside(elf, body, note.n_descsz)) return 0;
        if (note.n_type == type && note.n_namesz == strlen(owner) + 1 &&
            memcmp(elf->data + name, owner, note.n_namesz) == 0) {
            *desc = elf->data + body;
            *size = note.n_descsz;
            return 1;
        }
        at = body + align4(note.n_descsz);
    }
    return 0;
}

static int program_header(const kgen__elf *elf, unsigned index, Elf64_Phdr *out) {
    if (elf->header.e_phentsize != sizeof *out || elf->header.e_phoff > elf->size) return 0;
    return read_at(elf, elf->header.e_phoff + (uint64_t)index * sizeof *out, out, sizeof *out) &&
           inside(elf, out->p_offset, out->p_filesz);
}

int kgen__elf_note(const kgen__elf *elf, const char *owner, uint32_t type, const uint8_t **desc,
                   size_t *size) {
    Elf64_Phdr p;
    for (unsigned i = 0; i < elf->header.e_phnum; i++)
        if (program_header(elf, i, &p) && p.p_type == PT_NOTE &&
            note_in(elf, p.p_offset, p.p_offset + p.p_filesz, owner, type, desc, size))
            return 1;
    return 0;
}

int kgen__elf_dynamic(const kgen__elf *elf, int64_t tag, const char *prefix, const char **name) {
    kgen__section dynamic;
    Elf64_Shdr strings;
    const uint8_t *text;
    if (!kgen__elf_section_named(elf, ".dynamic", &dynamic) || !dynamic.data) return 0;
    if (!section_header(elf, dynamic.header.sh_link, &strings, &text)) return 0;
    for (uint64_t i = 0; i < dynamic.header.sh_size / sizeof(Elf64_Dyn); i++) {
        Elf64_Dyn entry;
        memcpy(&entry, dynamic.data + i * sizeof entry, sizeof entry);
        if (entry.d_tag != tag) continue;
        *name = string_at(text, strings.sh_size, entry.d_un.d_val);
        if (*name && strncmp(*name, prefix, strlen(prefix)) == 0) return 1;
    }
    return 0;
}
