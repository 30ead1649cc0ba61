/* vllm.cpp as published, its attention and Gated DeltaNet by kgen: providers of its operations
 * are registered, nothing else is touched.
 *
 *   serve_vllm_cpp [--device cpu:cdna3]
 *
 * Random weights in the shape of Qwen3.5-27B's layers, four of them and fewer heads. Its engine
 * (scheduler, prompts in chunks, paged cache, states in slots) decodes greedily by its own
 * kernels, then by kgen's, and the tokens are compared. vllm.cpp counts which provider ran; a
 * call that kgen passes on is a failure. Its models take the packed decode on a GPU only, so that
 * operation is called by itself. */
#include "kgen_providers.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "vllm/config/scheduler.h"
#include "vllm/model_executor/models/qwen3_5_dense.h"
#include "vllm/sampling_params.h"
#include "vllm/transformers_utils/hf_config.h"
#include "vllm/v1/core/sched/scheduler.h"
#include "vllm/v1/engine/core.h"
#include "vllm/v1/executor/executor.h"
#include "vllm/v1/kv_cache_interface.h"
#include "vllm/v1/worker/gpu/runner.h"
#include "vt/dtype.h"
#include "vt/op_provider.h"
#include "vt/ops.h"

namespace {

using vt::DType;
using vt::OpId;
using Tokens = std::map<std::string, std::vector<int32_t>>;

constexpr int BLOCK = 16, BLOCKS = 64, MAX_LEN = 128, MAX_SEQS = 4, STEP_TOKENS = 24, ANSWER = 10;
constexpr int PROMPTS[] = {5, 21, 40};
constexpr vt::Device CPU{vt::DeviceType::kCPU, 0};

struct Offered {
    OpId op;
    const char *name;
};

constexpr Offered IN_THE_ENGINE[] = {
    {OpId::kReshapeAndCache, "ReshapeAndCache"},
    {OpId::kPagedAttention, "PagedAttention"},
    {OpId::kCausalConv1dUpdate, "CausalConv1dUpdate"},
    {OpId::kGdnDecode, "GdnDecode"},
};
constexpr Offered ALONE = {OpId::kGdnPackedDecode, "GdnPackedDecode"};

int wrong;

/* ---- random weights ---------------------------------------------------------------- */

/* Of a place alone, so that both runs have the same. In -scale .. scale. */
float noise(uint64_t place, float scale) {
    place = (place + 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
    place = (place ^ (place >> 29)) * 0x94D049BB133111EBULL;
    return (static_cast<float>((place ^ (place >> 32)) >> 40) / float(1 << 23) - 1) * scale;
}

class Weights {
  public:
    vllm::OwnedTensor bf16(std::vector<int64_t> shape, float scale = 0.08f) {
        vllm::OwnedTensor t = sized(DType::kBF16, shape, 2);
        auto *p = reinterpret_cast<uint16_t *>(t.bytes.data());
        for (size_t i = 0; i < t.bytes.size() / 2; i++) p[i] = vt::F32ToBF16(noise(next_++, scale));
        return t;
    }

    vllm::OwnedTensor f32(std::vector<int64_t> shape) {
        vllm::OwnedTensor t = sized(DType::kF32, shape, 4);
        auto *p = reinterpret_cast<float *>(t.bytes.data());
        for (size_t i = 0; i < t.bytes.size() / 4; i++) p[i] = noise(next_++, 0.5f);
        return t;
    }

  private:
    static vllm::OwnedTensor sized(DType dtype, const std::vector<int64_t> &shape, size_t bytes) {
        vllm::OwnedTensor t;
        t.dtype = dtype;
        t.rank = static_cast<int>(shape.size());
        for (size_t i = 0; i < shape.size(); i++) {
            t.shape[i] = shape[i];
            bytes *= static_cast<size_t>(shape[i]);
        }
        t.bytes.resize(bytes);
        return t;
    }

    uint64_t next_ = 1;
};

/* Qwen3.5-27B: heads of 256 and of 128, six query heads a KV head, three value heads a key head. */
vllm::HfConfig make_config() {
    vllm::HfConfig c;
    c.model_type = "qwen3_5_text";
    c.architectures = {"Qwen3_5ForConditionalGeneration"};
    c.hidden_size = 128;
    c.num_hidden_layers = 4;
    c.layer_types = {"linear_attention", "linear_attention", "linear_attention", "full_attention"};
    c.vocab_size = 96;
    c.num_attention_heads = 6;
    c.num_key_value_heads = 1;
    c.head_dim = 256;
    c.intermediate_size = 64;
    c.linear_num_key_heads = 1;
    c.linear_num_value_heads = 3;
    c.linear_key_head_dim = c.linear_value_head_dim = 128;
    c.linear_conv_kernel_dim = 4;
    c.rope_theta = 10000;
    c.rotary_dim = 64;
    c.rms_norm_eps = 1e-6;
    c.max_position_embeddings = MAX_LEN;
    return c;
}

int64_t value_dim(const vllm::HfConfig &c) {
    return c.linear_num_value_heads * c.linear_value_head_dim;
}

int64_t channels(const vllm::HfConfig &c) {
    return 2 * c.linear_num_key_heads * c.linear_key_head_dim + value_dim(c);
}

void fill_delta(vllm::Qwen3_5DenseLayerWeights &layer, const vllm::HfConfig &c, Weights &random) {
    int64_t h = c.hidden_size, heads = c.linear_num_value_heads;
    layer.gdn.in_proj_qkv = random.bf16({h, channels(c)});
    layer.gdn.in_proj_z = random.bf16({h, value_dim(c)});
    layer.gdn.in_proj_b = random.bf16({h, heads});
    layer.gdn.in_proj_a = random.bf16({h, heads});
    layer.gdn.conv1d_weight = random.bf16({channels(c), c.linear_conv_kernel_dim}, 0.5f);
    layer.gdn.a_log = random.f32({heads});
    layer.gdn.dt_bias = random.f32({heads});
    layer.gdn.norm_weight = random.bf16({c.linear_value_head_dim});
    layer.gdn.out_proj = random.bf16({value_dim(c), h});
}

void fill_attention(vllm::Qwen3_5DenseLayerWeights &layer, const vllm::HfConfig &c,
                    Weights &random) {
    int64_t h = c.hidden_size, d = c.head_dim;
    layer.attn.q_proj = random.bf16({h, 2 * c.num_attention_heads * d});
    layer.attn.k_proj = random.bf16({h, c.num_key_value_heads * d});
    layer.attn.v_proj = random.bf16({h, c.num_key_value_heads * d});
    layer.attn.o_proj = random.bf16({c.num_attention_heads * d, h});
    layer.attn.q_norm = random.bf16({d});
    layer.attn.k_norm = random.bf16({d});
}

vllm::Qwen3_5DenseWeights make_weights(const vllm::HfConfig &c) {
    Weights random;
    vllm::Qwen3_5DenseWeights w;
    int64_t h = c.hidden_size;
    w.embed_tokens = random.bf16({c.vocab_size, h}, 1);
    w.final_norm = random.bf16({h});
    w.lm_head = random.bf16({h, c.vocab_size});
    for (const std::string &type : c.layer_types) {
        vllm::Qwen3_5DenseLayerWeights layer;
        layer.is_linear_attention = type == "linear_attention";
        layer.input_layernorm = random.bf16({h});
        layer.post_attention_layernorm = random.bf16({h});
        (layer.is_linear_attention ? fill_delta : fill_attention)(layer, c, random);
        layer.mlp.gate_proj = random.bf16({h, c.intermediate_size});
        layer.mlp.up_proj = random.bf16({h, c.intermediate_size});
        layer.mlp.down_proj = random.bf16({c.intermediate_size, h});
        w.layers.push_back(std::move(layer));
    }
    return w;
}

/* ---- its engine -------------------------------------------------------------------- */

vllm::v1::KVCacheConfig make_caches(const vllm::HfConfig &c) {
    using Shapes = std::vector<std::vector<int64_t>>;
    vllm::v1::KVCacheConfig caches;
    caches.num_blocks = BLOCKS;
    caches.kv_cache_groups.emplace_back(std::vector<std::string>{"attention"},
                                        std::make_shared<vllm::v1::FullAttentionSpec>(
                                            BLOCK, static_cast<int>(c.num_key_value_heads),
                                            static_cast<int>(c.head_dim), DType::kBF16));
    caches.kv_cache_groups.emplace_back(
        std::vector<std::string>{"delta0", "delta1", "delta2"},
        std::make_shared<vllm::v1::MambaSpec>(
            BLOCK,
            Shapes{{channels(c), c.linear_conv_kernel_dim - 1},
                   {c.linear_num_value_heads, c.linear_value_head_dim, c.linear_key_head_dim}},
            std::vector<DType>{DType::kF32, DType::kF32}));
    return caches;
}

vllm::SchedulerConfig make_schedule() {
    vllm::SchedulerConfig s;
    s.max_num_seqs = MAX_SEQS;
    s.max_num_batched_tokens = STEP_TOKENS;
    s.enable_chunked_prefill = true;
    s.max_model_len = MAX_LEN;
    s.watermark = 0;
    return s;
}

std::unique_ptr<vllm::v1::Request> make_request(int index, const vllm::HfConfig &c) {
    std::vector<int32_t> prompt(static_cast<size_t>(PROMPTS[index]));
    for (size_t i = 0; i < prompt.size(); i++)
        prompt[i] = static_cast<int32_t>((i * i * 7 + i * 13 + static_cast<size_t>(index) * 31) %
                                         static_cast<size_t>(c.vocab_size));
    vllm::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = ANSWER;
    params.PostInit();
    return std::make_unique<vllm::v1::Request>(std::to_string(index), std::move(prompt), params,
                                               0.0);
}

Tokens decode(const vllm::HfConfig &c, const vllm::Qwen3_5DenseWeights &weights) {
    vllm::v1::KVCacheConfig caches = make_caches(c);
    vllm::v1::Scheduler scheduler(make_schedule(), caches, BLOCK);
    vllm::v1::GPUModelRunner runner(c, weights, caches, vt::Queue{CPU}, MAX_SEQS, MAX_LEN,
                                    STEP_TOKENS);
    vllm::v1::Executor executor(runner);
    vllm::v1::EngineCore engine(scheduler, executor);
    for (int i = 0; i < static_cast<int>(std::size(PROMPTS)); i++)
        engine.add_request(make_request(i, c));
    Tokens tokens;
    while (scheduler.get_num_unfinished_requests() > 0)
        for (const auto &[client, outputs] : engine.step().first)
            for (const auto &output : outputs.outputs)
                for (int32_t token : output.new_token_ids)
                    tokens[output.request_id].push_back(token);
    return tokens;
}

/* ---- what is compared -------------------------------------------------------------- */

void expect(bool right, const char *what, const std::string &detail) {
    if (right) return;
    std::printf("%s: %s\n", what, detail.c_str());
    wrong++;
}

/* Every call since the counters were zero. */
void expect_kgen_ran(const Offered &offered) {
    vt::OpProviderStats s = vt::GetOpProviderStats(offered.op, CPU.type);
    std::string ran = s.last_selected ? s.last_selected : "none";
    expect(ran == kgen_providers::NAME, offered.name, "provider " + ran);
    expect(s.selections > 0, offered.name, "never called");
    expect(s.declines == 0, offered.name, std::to_string(s.declines) + " calls passed on");
    std::printf("%-20s %llu calls by %s\n", offered.name, s.selections, ran.c_str());
}

/* Greedy decodes of three prompts. */
void compare_engines() {
    vllm::HfConfig c = make_config();
    vllm::Qwen3_5DenseWeights weights = make_weights(c);
    vt::DisableOpProvider(kgen_providers::NAME, true);
    Tokens own = decode(c, weights);
    vt::DisableOpProvider(kgen_providers::NAME, false);
    for (const Offered &o : IN_THE_ENGINE) vt::ResetOpProviderStats(o.op, CPU.type);
    Tokens ours = decode(c, weights);
    for (const Offered &o : IN_THE_ENGINE) expect_kgen_ran(o);
    expect(own.size() == std::size(PROMPTS), "vllm.cpp", std::to_string(own.size()) + " answers");
    for (const auto &[id, tokens] : own) {
        expect(tokens.size() == ANSWER, "vllm.cpp", std::to_string(tokens.size()) + " tokens");
        std::string all = "answer " + id + ":";
        for (size_t i = 0; i < tokens.size(); i++) all += " " + std::to_string(tokens[i]);
        std::printf("%s\n", all.c_str());
        expect(ours[id] == tokens, "tokens", "of answer " + id + " differ");
    }
}

/* One step of four sequences, the third of them none, in slots of their own. */
struct Packed {
    static constexpr int64_t N = 4, HK = 2, HV = 4, D = 128, SLOTS = 6, C = (2 * HK + HV) * D;
    std::vector<uint16_t> qkv = std::vector<uint16_t>(N * C),
                          gates = std::vector<uint16_t>(2 * N * HV),
                          dt_bias = std::vector<uint16_t>(HV),
                          out = std::vector<uint16_t>(N * HV * D);
    std::vector<float> a_log = std::vector<float>(HV),
                       state = std::vector<float>(SLOTS * HV * D * D);
    std::vector<int32_t> slots = {5, 0, -1, 2};

    Packed() {
        uint64_t n = 1;
        for (auto *part : {&qkv, &gates, &dt_bias})
            for (uint16_t &x : *part) x = vt::F32ToBF16(noise(n++, 1));
        for (auto *part : {&a_log, &state})
            for (float &x : *part) x = noise(n++, 1);
    }

    void step() {
        auto t = [](void *data, DType dtype, std::initializer_list<int64_t> shape) {
            return vt::Tensor::Contiguous(data, dtype, CPU, shape);
        };
        vt::Queue q{CPU};
        vt::Tensor o = t(out.data(), DType::kBF16, {N, HV, D});
        vt::Tensor s = t(state.data(), DType::kF32, {SLOTS, HV, D, D});
        vt::GdnPackedDecode(
            q, o, t(qkv.data(), DType::kBF16, {N, C}), t(gates.data(), DType::kBF16, {N, HV}),
            t(gates.data() + N * HV, DType::kBF16, {N, HV}), t(a_log.data(), DType::kF32, {HV}),
            t(dt_bias.data(), DType::kBF16, {HV}), s, t(slots.data(), DType::kI32, {N}),
            vt::GdnArgs{1 / std::sqrt(float(D))});
    }
};

void compare_packed_decode() {
    Packed own, ours;
    vt::DisableOpProvider(kgen_providers::NAME, true);
    own.step();
    vt::DisableOpProvider(kgen_providers::NAME, false);
    vt::ResetOpProviderStats(ALONE.op, CPU.type);
    ours.step();
    expect_kgen_ran(ALONE);
    size_t far = 0;
    for (size_t i = 0; i < own.out.size(); i++) {
        float want = vt::BF16ToF32(own.out[i]), got = vt::BF16ToF32(ours.out[i]);
        far +=
            !(std::fabs(got - want) <= (0.01 + std::fabs(want)) / 128); /* two roundings to bf16 */
    }
    expect(far == 0, ALONE.name, std::to_string(far) + " outputs differ");
    for (size_t i = far = 0; i < own.state.size(); i++)
        far += !(std::fabs(ours.state[i] - own.state[i]) <= 1e-5);
    expect(far == 0, ALONE.name, "states differ: " + std::to_string(far));
}

/* A cache of 32 bits is none of kgen's: vllm.cpp's own kernel writes it. */
void compare_what_is_passed_on() {
    float k[2 * 16] = {}, v[2 * 16] = {}, caches[2][4 * 16] = {};
    int64_t slots[] = {3, 0};
    k[16] = 5;
    v[0] = 7;
    vt::Queue q{CPU};
    auto rows = [](float *data) {
        return vt::Tensor::Contiguous(data, DType::kF32, CPU, {2, 1, 16});
    };
    auto pages = [](float *data) {
        return vt::Tensor::Contiguous(data, DType::kF32, CPU, {1, 4, 1, 16});
    };
    vt::Tensor k_cache = pages(caches[0]), v_cache = pages(caches[1]);
    vt::ResetOpProviderStats(OpId::kReshapeAndCache, CPU.type);
    vt::ReshapeAndCache(q, rows(k), rows(v), k_cache, v_cache,
                        vt::Tensor::Contiguous(slots, DType::kI64, CPU, {2}));
    uint64_t declined = vt::GetOpProviderStats(OpId::kReshapeAndCache, CPU.type).declines;
    expect(declined == 1, "a cache of 32 bits", std::to_string(declined) + " calls passed on");
    expect(caches[0][0] == 5 && caches[1][3 * 16] == 7, "a cache of 32 bits", "not written");
}

} // namespace

int main(int argc, char **argv) {
    const char *device = argc == 3 && !std::strcmp(argv[1], "--device") ? argv[2] : "cpu:cdna3";
    try {
        kgen_providers::install(device);
        vt::EnableOpProviderCallStats(true);
        compare_engines();
        compare_packed_decode();
        compare_what_is_passed_on();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "serve_vllm_cpp: %s\n", e.what());
        return 1;
    }
    if (!wrong) std::printf("the same tokens by vllm.cpp's kernels and by kgen's\n");
    return wrong != 0;
}
