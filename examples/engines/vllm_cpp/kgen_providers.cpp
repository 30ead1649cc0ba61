/* Each operation says by its tensors which kernel it needs. The kernel is prepared when
 * it is first asked for, and launched with vllm.cpp's own memory. What kgen refuses goes
 * to the next provider, which vllm.cpp counts. */
#include "kgen_providers.h"

#include <kgen/kgen.h>

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "vt/op_provider.h"
#include "vt/ops.h"

namespace kgen_providers {
namespace {

using vt::DType;
using vt::OpId;
using vt::Queue;
using vt::Tensor;

[[noreturn]] void fail(const kgen_error &err) {
    throw std::runtime_error(std::string("kgen: ") + err.text);
}

void must(kgen_status status, const kgen_error &err) {
    if (status != KGEN_OK) fail(err);
}

/* ---- kernels, by the line of their spec ------------------------------------------- */

struct Kernel {
    kgen_kernel *handle = nullptr; /* NULL: kgen refuses the line */
    kgen_args args{};
    kgen_args_room room{};
};

class Device {
  public:
    explicit Device(const char *name) {
        kgen_open_options options{};
        options.size = sizeof options;
        options.device = name;
        kgen_error err{};
        must(kgen_open(&ctx_, &options, &err), err);
    }

    ~Device() {
        kgen_memory_free(ctx_, workspace_);
        kgen_close(ctx_);
    }

    /* Its arguments are zeros, but for the family. */
    Kernel &kernel(const std::string &line) {
        auto [at, fresh] = kernels_.try_emplace(line);
        Kernel &k = at->second;
        kgen_spec spec;
        kgen_error err{};
        if (fresh && kgen_spec_parse(&spec, line.c_str(), &err) == KGEN_OK)
            must(kgen_prepare(ctx_, &spec, 1, &k.handle, &err), err);
        if (k.handle) kgen_args_init(&k.args, &k.room, kgen_kernel_spec(k.handle));
        return k;
    }

    void launch(Kernel &k) {
        kgen_error err{};
        size_t bytes = 0;
        must(kgen_workspace_size(k.handle, &k.args, &bytes, &err), err);
        grow(bytes);
        k.args.workspace = workspace_;
        k.args.workspace_bytes = workspace_bytes_;
        must(kgen_launch(k.handle, &k.args, nullptr, &err), err);
        must(kgen_stream_sync(ctx_, nullptr, &err), err);
    }

    std::mutex mutex;

  private:
    void grow(size_t bytes) {
        if (bytes <= workspace_bytes_) return;
        kgen_error err{};
        kgen_memory_free(ctx_, workspace_);
        workspace_bytes_ = 0;
        must(kgen_memory_alloc(ctx_, &workspace_, bytes, &err), err);
        must(kgen_workspace_init(ctx_, workspace_, bytes, nullptr, &err), err);
        workspace_bytes_ = bytes;
    }

    kgen_context *ctx_ = nullptr;
    void *workspace_ = nullptr;
    size_t workspace_bytes_ = 0;
    std::map<std::string, Kernel> kernels_;
};

std::unique_ptr<Device> device;

/* ---- tensors and lines ------------------------------------------------------------ */

struct Type {
    const char *word; /* in a spec */
    kgen_dtype dtype;
};

/* A type that kgen does not know has no word: its line is refused. */
Type type_of(DType t) {
    switch (t) {
    case DType::kF32:
        return {"f32", KGEN_DTYPE_F32};
    case DType::kF16:
        return {"fp16", KGEN_DTYPE_FP16};
    case DType::kBF16:
        return {"bf16", KGEN_DTYPE_BF16};
    case DType::kI32:
        return {"i32", KGEN_DTYPE_I32};
    case DType::kI64:
        return {"i64", KGEN_DTYPE_I64};
    default:
        return {"?", KGEN_DTYPE_NONE};
    }
}

kgen_tensor view(const Tensor &t, kgen_layout layout = KGEN_LAYOUT_NONE) {
    kgen_tensor out{};
    out.data = t.data;
    out.dtype = type_of(t.dtype).dtype;
    out.layout = layout;
    out.rank = t.rank;
    for (int i = 0; i < t.rank; i++) {
        out.shape[i] = t.shape[i];
        out.stride[i] = t.stride[i];
    }
    return out;
}

std::string key(const char *name, const Tensor &t) {
    return std::string(",") + name + "=" + type_of(t.dtype).word;
}

std::string key(const char *name, int64_t value) {
    return std::string(",") + name + "=" + std::to_string(value);
}

/* Row n where vllm.cpp gives no index. */
kgen_tensor slots_of(const Tensor *index, int64_t rows) {
    static std::vector<int32_t> all;
    if (index) return view(*index);
    if (static_cast<int64_t>(all.size()) < rows) {
        all.resize(static_cast<size_t>(rows));
        std::iota(all.begin(), all.end(), 0);
    }
    return kgen_tensor_dense(all.data(), KGEN_DTYPE_I32, 1, &rows);
}

/* To the provider after kgen. */
template <typename Function, typename... Arguments>
void pass_on(OpId op, Arguments &&...arguments) {
    auto *next = reinterpret_cast<Function>(vt::GetOpFallback(op, vt::DeviceType::kCPU, NAME));
    next(std::forward<Arguments>(arguments)...);
}

/* ---- the operations --------------------------------------------------------------- */

void reshape_and_cache(Queue &q, const Tensor &k, const Tensor &v, Tensor &k_cache, Tensor &v_cache,
                       const Tensor &slot_mapping) {
    std::lock_guard lock(device->mutex);
    Kernel &kernel = device->kernel("kv_write:layout=nhd" + key("x", k) + key("kv", k_cache) +
                                    key("d", k_cache.shape[3]) + key("page", k_cache.shape[1]));
    if (!kernel.handle)
        return pass_on<vt::ReshapeAndCacheFn>(OpId::kReshapeAndCache, q, k, v, k_cache, v_cache,
                                              slot_mapping);
    kgen_kv_write_args &a = *kernel.args.kv_write;
    a.k = view(k);
    a.v = view(v);
    a.slots = view(slot_mapping);
    a.k_cache = view(k_cache, KGEN_LAYOUT_NHD);
    a.v_cache = view(v_cache, KGEN_LAYOUT_NHD);
    device->launch(kernel);
}

bool one_token_each(const Tensor &query_start_loc) {
    const int32_t *starts = query_start_loc.Ptr<int32_t>();
    for (int64_t s = 0; s + 1 < query_start_loc.shape[0]; s++)
        if (starts[s + 1] - starts[s] != 1) return false;
    return true;
}

std::string attention_line(const Tensor &out, const Tensor &query, const Tensor &k_cache,
                           const Tensor &query_start_loc, const vt::PagedAttentionArgs &args) {
    std::string line = "attn:layout=nhd";
    bool decode = args.causal && one_token_each(query_start_loc);
    line += decode ? ",phase=decode" : ",phase=extend";
    line += key("q", query) + key("kv", k_cache) + key("o", out) + key("d", query.shape[2]);
    line += key("g", query.shape[1] / k_cache.shape[2]) + key("page", k_cache.shape[1]);
    if (!args.causal) line += ",causal=0";
    if (args.window_size) line += args.causal ? ",window=rt" : ",window=rt,right=rt";
    if (args.logits_soft_cap > 0) line += ",softcap=1";
    return line;
}

void paged_attention(Queue &q, Tensor &out, const Tensor &query, const Tensor &k_cache,
                     const Tensor &v_cache, const Tensor &block_table, const Tensor &seq_lens,
                     const Tensor &query_start_loc, const vt::PagedAttentionArgs &args) {
    std::lock_guard lock(device->mutex);
    Kernel &kernel = device->kernel(attention_line(out, query, k_cache, query_start_loc, args));
    if (!kernel.handle)
        return pass_on<vt::PagedAttentionFn>(OpId::kPagedAttention, q, out, query, k_cache, v_cache,
                                             block_table, seq_lens, query_start_loc, args);
    kgen_attn_args &a = *kernel.args.attn;
    a.q = view(query);
    a.out = view(out);
    a.k = view(k_cache, KGEN_LAYOUT_NHD);
    a.v = view(v_cache, KGEN_LAYOUT_NHD);
    a.block_table = view(block_table);
    a.seq_lens = view(seq_lens);
    if (kgen_kernel_spec(kernel.handle)->attn.phase != KGEN_PHASE_DECODE)
        a.cu_seqlens_q = view(query_start_loc);
    a.softmax_scale = args.scale;
    if (args.logits_soft_cap > 0) a.softcap = args.logits_soft_cap;
    if (args.window_size) a.window = args.window_size->left + 1;
    if (args.window_size && !args.causal) a.right = args.window_size->right + 1;
    device->launch(kernel);
}

void causal_conv1d_update(Queue &q, Tensor &out, const Tensor &x, const Tensor &weight,
                          const Tensor *bias, Tensor &conv_state, const Tensor *index,
                          const vt::CausalConv1dArgs &args) {
    std::lock_guard lock(device->mutex);
    std::string line = "gdn:fuse=c,layout=presplit,pad=neg,cl=ds";
    line += key("x", x) + key("cw", weight) + key("cs", conv_state);
    line += key("ch", x.shape[1]) + key("w", weight.shape[1]);
    if (bias) line += ",bias=1";
    if (!args.silu_activation) line += ",act=none";
    if (out.dtype != x.dtype || (bias && bias->dtype != weight.dtype)) line += ",o=?";
    Kernel &kernel = device->kernel(line);
    if (!kernel.handle)
        return pass_on<vt::CausalConv1dUpdateFn>(OpId::kCausalConv1dUpdate, q, out, x, weight, bias,
                                                 conv_state, index, args);
    kgen_gdn_args &a = *kernel.args.gdn;
    a.x = view(x, KGEN_ROWS_PRESPLIT);
    a.conv_weight = view(weight);
    if (bias) a.conv_bias = view(*bias);
    a.conv_state = view(conv_state, KGEN_CONV_DS);
    a.slots = slots_of(index, x.shape[0]);
    a.out = view(out);
    device->launch(kernel);
}

/* Heads and types that both forms of the recurrence have. */
std::string delta_line(const Tensor &x, const Tensor &out, const Tensor &state, int64_t k_heads) {
    std::string line = "gdn:fuse=a,layout=presplit,pad=neg";
    line += key("x", x) + key("o", out) + key("state", state) + key("hk", k_heads);
    line += key("hv", state.shape[1]) + key("dv", state.shape[2]) + key("dk", state.shape[3]);
    return line;
}

/* Queries and keys come normalised, decays as logs, beta as it is. */
void gdn_decode(Queue &q, Tensor &out, const Tensor &queries, const Tensor &keys,
                const Tensor &values, const Tensor &g, const Tensor &beta, Tensor &state,
                const Tensor *index, const vt::GdnArgs &args) {
    std::lock_guard lock(device->mutex);
    Kernel &kernel = device->kernel(delta_line(queries, out, state, queries.shape[1]) +
                                    ",qkv=split,raw=1,l2=0" + key("ab", g));
    if (!kernel.handle)
        return pass_on<vt::GdnDecodeFn>(OpId::kGdnDecode, q, out, queries, keys, values, g, beta,
                                        state, index, args);
    kgen_gdn_args &a = *kernel.args.gdn;
    a.q = view(queries);
    a.k = view(keys);
    a.v = view(values);
    a.a = view(g);
    a.b = view(beta);
    a.state = view(state, KGEN_STATE_VK);
    a.slots = slots_of(index, queries.shape[0]);
    a.out = view(out);
    a.q_scale = args.scale;
    device->launch(kernel);
}

void gdn_packed_decode(Queue &q, Tensor &out, const Tensor &mixed_qkv, const Tensor &decay,
                       const Tensor &beta, const Tensor &a_log, const Tensor &dt_bias,
                       Tensor &state, const Tensor &index, const vt::GdnArgs &args) {
    std::lock_guard lock(device->mutex);
    int64_t values = state.shape[1] * state.shape[2];
    int64_t k_heads = (mixed_qkv.shape[1] - values) / (2 * state.shape[3]);
    Kernel &kernel = device->kernel(delta_line(mixed_qkv, out, state, k_heads) + ",betar=1" +
                                    key("alog", a_log) + key("dt", dt_bias));
    if (!kernel.handle)
        return pass_on<vt::GdnPackedDecodeFn>(OpId::kGdnPackedDecode, q, out, mixed_qkv, decay,
                                              beta, a_log, dt_bias, state, index, args);
    kgen_gdn_args &a = *kernel.args.gdn;
    a.x = view(mixed_qkv);
    a.a = view(decay);
    a.b = view(beta);
    a.a_log = view(a_log);
    a.dt_bias = view(dt_bias);
    a.state = view(state, KGEN_STATE_VK);
    a.slots = view(index);
    a.out = view(out);
    a.q_scale = args.scale;
    a.l2_eps = 1e-6f; /* what vllm.cpp's kernels have */
    device->launch(kernel);
}

/* ---- all -------------------------------------------------------------------------- */

/* The function's type is the operation's: another signature does not compile. */
template <typename Function> void offer(OpId op, std::type_identity_t<Function> function) {
    vt::OpProvider provider;
    provider.name = NAME;
    provider.priority = 100;
    provider.fn = reinterpret_cast<void *>(function);
    vt::RegisterOpProvider(op, vt::DeviceType::kCPU, provider);
}

} // namespace

void install(const char *name) {
    device = std::make_unique<Device>(name);
    offer<vt::ReshapeAndCacheFn>(OpId::kReshapeAndCache, reshape_and_cache);
    offer<vt::PagedAttentionFn>(OpId::kPagedAttention, paged_attention);
    offer<vt::CausalConv1dUpdateFn>(OpId::kCausalConv1dUpdate, causal_conv1d_update);
    offer<vt::GdnDecodeFn>(OpId::kGdnDecode, gdn_decode);
    offer<vt::GdnPackedDecodeFn>(OpId::kGdnPackedDecode, gdn_packed_decode);
}

} // namespace kgen_providers
