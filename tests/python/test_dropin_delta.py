"""The Gated DeltaNet drop-ins beside plain torch, on the cpu device."""
import sys
import unittest

import torch
from references import close, delta_rule, gates
from torch.nn import functional

from kgen.dropin import aiter, fla, sglang, vllm

HK, HV, K, V = 1, 2, 64, 64
C = 2 * HK * K + HV * V


def split(rows):
    q, k, v = rows.split((HK * K, HK * K, HV * V), -1)
    return q.unflatten(-1, (HK, K)), k.unflatten(-1, (HK, K)), v.unflatten(-1, (HV, V))


class Inputs:
    def __init__(self, rows, slots=5):
        self.x = torch.randn(rows, C).bfloat16()
        self.a, self.b = torch.randn(2, rows, HV).bfloat16()
        self.a_log, self.dt_bias = torch.rand(HV), torch.randn(HV).bfloat16()
        self.state = torch.randn(slots, HV, V, K) * 0.1
        self.before = self.state.clone()

    def want(self, rows, slot):
        """Outputs of these rows, and the state after them."""
        state = self.before[slot].clone()
        decay, beta = gates(self.a[rows], self.b[rows], self.a_log, self.dt_bias)
        return delta_rule(*split(self.x[rows]), decay, beta, state, K ** -0.5), state


class Recurrence(unittest.TestCase):
    def test_packed_decode(self):
        i, out = Inputs(3), torch.full((3, 1, HV, V), float("nan"), dtype=torch.bfloat16)
        vllm.fused_recurrent_gated_delta_rule_packed_decode(
            i.x, i.a, i.b, i.a_log, i.dt_bias, K ** -0.5, i.state, out, torch.tensor([4, 0, 2], dtype=torch.int32), True)
        for row, slot in ((0, 4), (2, 2)):
            want, state = i.want(slice(row, row + 1), slot)
            close(out[row], want, f"row {row}")
            close(i.state[slot], state, f"state {slot}", 1e-3)
        self.assertEqual(out[1].abs().max().item(), 0)
        self.assertTrue(torch.equal(i.state[0], i.before[0]))

    def test_packed_decode_is_of_one_token(self):
        """Slots of a longer batch are passed over, and fewer slots than rows are no rows of several tokens."""
        i, out = Inputs(2), torch.empty(2, 1, HV, V, dtype=torch.bfloat16)
        given = (i.x, i.a, i.b, i.a_log, i.dt_bias, K ** -0.5, i.state, out)
        vllm.fused_recurrent_gated_delta_rule_packed_decode(*given, torch.tensor([4, 2, 1, 3], dtype=torch.int32), True)
        for row, slot in ((0, 4), (1, 2)):
            want, state = i.want(slice(row, row + 1), slot)
            close(out[row], want, f"row {row}")
            close(i.state[slot], state, f"state {slot}", 1e-3)
        self.assertTrue(torch.equal(i.state[[1, 3]], i.before[[1, 3]]))
        with self.assertRaisesRegex(ValueError, "ssm_state_indices: 1 slots of 2 rows"):
            vllm.fused_recurrent_gated_delta_rule_packed_decode(*given, torch.tensor([4], dtype=torch.int32), True)

    def test_rearranged_drafts(self):
        """Two sequences with drafts: the state is read where the last step ended, and kept after each token."""
        i = Inputs(5, slots=7)
        slots = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int32)
        out, state = aiter.fused_rearrange_sigmoid_gated_delta_rule(
            i.a_log, i.a, i.b, i.dt_bias, i.x, HK * K, HV * V, K, V, initial_state=i.state,
            cu_seqlens=torch.tensor([0, 3, 5]), ssm_state_indices=slots,
            num_accepted_tokens=torch.tensor([2, 1], dtype=torch.int32), use_qk_l2norm_in_kernel=True)
        self.assertEqual(out.shape, (1, 5, HV, V))
        for rows, read, last in ((slice(0, 3), 2, 3), (slice(3, 5), 4, 5)):
            want, after = i.want(rows, read)
            close(out[0, rows], want, f"rows {rows}")
            close(state[last], after, f"state {last}", 1e-3)

    def test_sigmoid_gating_of_separate_tensors(self):
        i = Inputs(3)
        for apart in (False, True):  # views of one row, and tensors of their own
            i.state.copy_(i.before)
            q, k, v = (x[None].clone() if apart else x[None] for x in split(i.x))
            out, _ = vllm.fused_sigmoid_gating_delta_rule_update(
                i.a_log, i.a, i.b, i.dt_bias, q, k, v, initial_state=i.state,
                cu_seqlens=torch.arange(4), ssm_state_indices=torch.tensor([1, 2, 3]), use_qk_l2norm_in_kernel=True)
            for row in range(3):
                close(out[0, row:row + 1], i.want(slice(row, row + 1), row + 1)[0], f"row {row}, apart {apart}")

    def test_states_of_the_sequences_themselves(self):
        """Without slots a sequence has the state of its number, the first one that of 0, which as a slot is nobody's."""
        i = Inputs(3, slots=3)
        q, k, v = (x[:, None] for x in split(i.x))
        decay, beta = gates(i.a, i.b, i.a_log, i.dt_bias)
        given = {"initial_state": i.state, "use_qk_l2norm_in_kernel": True}
        for raw in (False, True):
            i.state.copy_(i.before)
            out, _ = (vllm.fused_recurrent_gated_delta_rule(q, k, v, decay.log()[:, None], beta[:, None], **given) if raw else
                      vllm.fused_sigmoid_gating_delta_rule_update(i.a_log, i.a, i.b, i.dt_bias, q, k, v, **given))
            for row in range(3):
                want, after = i.want(slice(row, row + 1), row)
                close(out[row], want, f"sequence {row}, gates as they are {raw}")
                close(i.state[row], after, f"state {row}", 1e-3)

    def test_a_sequence_in_pieces(self):
        """Without cu_seqlens a row of the batch is a sequence; the state comes back after each token, or in place."""
        i = Inputs(36)
        q, k, v = (x.view(2, 18, *x.shape[1:]) for x in split(i.x))
        for in_place in (False, True):
            out, state = vllm.fused_sigmoid_gating_delta_rule_update(
                i.a_log, i.a, i.b, i.dt_bias, q, k, v, initial_state=i.state, inplace_final_state=in_place,
                ssm_state_indices=torch.tensor([3, 1]), use_qk_l2norm_in_kernel=True)
            self.assertEqual(torch.equal(i.state, i.before), not in_place)
            for row, slot in ((0, 3), (1, 1)):
                want, after = i.want(slice(18 * row, 18 * row + 18), slot)
                close(out[row], want, f"sequence {row}, in place {in_place}")
                close(state[slot] if in_place else state[18 * row + 17], after, f"state {row}", 1e-3)
            self.assertEqual(state.shape[0], 5 if in_place else 36)

    def test_rows_of_no_sequence_in_pieces(self):
        """Slots that stand for none, and one outside the pool: zeros in every piece, and nothing in the pool changes."""
        for in_place in (False, True):
            for nobody in (0, -1, 5):
                i = Inputs(36)
                q, k, v = (x.view(2, 18, *x.shape[1:]) for x in split(i.x))
                out, _ = vllm.fused_sigmoid_gating_delta_rule_update(
                    i.a_log, i.a, i.b, i.dt_bias, q, k, v, initial_state=i.state, inplace_final_state=in_place,
                    ssm_state_indices=torch.tensor([nobody, 1]), use_qk_l2norm_in_kernel=True)
                self.assertEqual(out[0].abs().max().item(), 0, (nobody, in_place))
                close(out[1], i.want(slice(18, 36), 1)[0], f"beside slot {nobody}")
                self.assertTrue(torch.equal(i.state[[0, 2, 3, 4]], i.before[[0, 2, 3, 4]]))

    def test_no_rows(self):
        i = Inputs(0)
        q, k, v = (x[None] for x in split(i.x))
        out, state = vllm.fused_sigmoid_gating_delta_rule_update(
            i.a_log, i.a, i.b, i.dt_bias, q, k, v, initial_state=i.state, cu_seqlens=torch.zeros(3, dtype=torch.int32),
            ssm_state_indices=torch.tensor([1, 2]), use_qk_l2norm_in_kernel=True)
        self.assertTrue(out.shape == (1, 0, HV, V) and torch.equal(state, i.before))

    def test_given_gates(self):
        i = Inputs(4)
        decay, beta = gates(i.a, i.b, i.a_log, i.dt_bias)
        q, k, v = (x.view(2, 2, *x.shape[1:]) for x in split(i.x))
        first = (i.before[:2].transpose(2, 3).contiguous(), decay.log().view(2, 2, HV), beta.view(2, 2, HV))
        out, state = fla.fused_recurrent_gated_delta_rule(q, k, v, first[1], beta=first[2], initial_state=first[0],
                                                          output_final_state=True, use_qk_l2norm_in_kernel=True)
        for row in range(2):
            want, after = i.want(slice(2 * row, 2 * row + 2), row)
            close(out[row], want, f"sequence {row}")
            close(state[row].transpose(1, 2), after, f"state {row}", 1e-3)
        turned = first[0].mT.contiguous().mT  # the same numbers in another order of memory
        again = fla.fused_recurrent_gated_delta_rule(q, k, v, first[1], beta=first[2], initial_state=turned, output_final_state=True,
                                                     use_qk_l2norm_in_kernel=True)
        self.assertTrue(torch.equal(again[0], out) and torch.equal(again[1], state))

    def test_gates_that_are_not_given(self):
        """Made of a, b and their parameters, the state as [V][K]; and betas of up to 2."""
        i = Inputs(4)
        q, k, v = (x.view(2, 2, *x.shape[1:]) for x in split(i.x))
        a, b, state = i.a.view(2, 2, HV), i.b.view(2, 2, HV), i.before[:2]
        how = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True, "state_v_first": True,
               "use_gate_in_kernel": True, "A_log": i.a_log, "dt_bias": i.dt_bias}
        out, after = fla.fused_recurrent_gated_delta_rule(q, k, v, a, beta=b, use_beta_sigmoid_in_kernel=True, **how)
        for row in range(2):
            want, state_after = i.want(slice(2 * row, 2 * row + 2), row)
            close(out[row], want, f"sequence {row}")
            close(after[row], state_after, f"state {row}", 1e-3)
        twice = fla.fused_recurrent_gated_delta_rule(q, k, v, a, beta=b, use_beta_sigmoid_in_kernel=True,
                                                     allow_neg_eigval=True, **how)[0]
        given = fla.fused_recurrent_gated_delta_rule(q, k, v, a, beta=2 * b.float().sigmoid(), **how)[0]
        self.assertTrue(torch.equal(twice, given) and not torch.equal(twice, out))
        with self.assertRaisesRegex(ValueError, "A_log=None"):
            fla.fused_recurrent_gated_delta_rule(q, k, v, a, beta=b, use_gate_in_kernel=True)

    def test_decays_of_channels(self):
        """As they are, by softplus, by a bound with and without A_log; states either way round, and by cu_seqlens."""
        i, log, bias = Inputs(6), torch.rand(HV), torch.randn(HV * K)
        q, k, v = split(i.x)
        raw, beta = torch.randn(6, HV, K), torch.rand(6, HV)
        moved = raw + bias.view(HV, K)
        gates_of = (({}, -raw.abs(), -raw.abs()),
                    ({"use_gate_in_kernel": True, "A_log": log, "dt_bias": bias}, raw, -log.exp()[:, None] * functional.softplus(moved)),
                    ({"use_gate_in_kernel": True, "A_log": log, "dt_bias": bias, "lower_bound": -5.0}, raw,
                     -5.0 * (log.exp()[:, None] * moved).sigmoid()),
                    ({"use_gate_in_kernel": True, "lower_bound": -5.0}, raw, -5.0 * raw.sigmoid()))
        for n, (how, given, decay) in enumerate(gates_of):
            first = n % 2 == 1
            state = i.before[:3] if first else i.before[:3].mT.contiguous()
            parts = [x.view(3, 2, *x.shape[1:]) for x in (q, k, v, given, beta)]
            how |= {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True, "state_v_first": first}
            out, after = fla.fused_recurrent_kda(*parts, **how)
            ragged = fla.fused_recurrent_kda(*(x.flatten(0, 1)[None] for x in parts), **how, cu_seqlens=torch.tensor([0, 2, 4, 6]))
            self.assertTrue(torch.equal(ragged[0][0], out.flatten(0, 1)) and torch.equal(ragged[1], after))
            for row in range(3):
                now, of = i.before[row].clone(), slice(2 * row, 2 * row + 2)
                close(out[row], delta_rule(q[of], k[of], v[of], decay[of].exp(), beta[of], now, K ** -0.5), f"gate {n}")
                close(after[row] if first else after[row].mT, now, f"state {n}", 1e-3)
        twice = fla.fused_recurrent_kda(*parts[:4], beta.view(3, 2, HV), use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True, **how)
        same = fla.fused_recurrent_kda(*parts[:4], 2 * beta.view(3, 2, HV).sigmoid(), **how)
        self.assertTrue(torch.equal(twice[0], same[0]) and torch.equal(twice[1], same[1]))
        with self.assertRaisesRegex(ValueError, "A_log=None"):
            fla.fused_recurrent_kda(*parts, use_gate_in_kernel=True)
        with self.assertRaisesRegex(ValueError, "allow_neg_eigval"):
            fla.fused_recurrent_kda(*parts, allow_neg_eigval=True)

    def test_refuses(self):
        i = Inputs(40)
        q, k, v = (x[None] for x in split(i.x))
        given = (i.a_log, i.a, i.b, i.dt_bias, q, k, v)
        with self.assertRaisesRegex(NotImplementedError, "t=40"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given, initial_state=i.state,
                                                        cu_seqlens=torch.tensor([0, 38, 40]))
        with self.assertRaisesRegex(NotImplementedError, "inplace_final_state"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given, initial_state=i.state, inplace_final_state=False,
                                                        cu_seqlens=torch.tensor([0, 2, 5]))
        drafts = {"initial_state": i.state, "num_accepted_tokens": torch.ones(2, dtype=torch.int32)}
        with self.assertRaisesRegex(NotImplementedError, "inplace_final_state=False with num_accepted_tokens"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given[:4], *(x.view(2, 20, *x.shape[2:]) for x in (q, k, v)), **drafts,
                                                        inplace_final_state=False, ssm_state_indices=torch.ones(2, 20))
        with self.assertRaisesRegex(NotImplementedError, "t=20: slots of each token"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given[:4], *(x.view(2, 20, *x.shape[2:]) for x in (q, k, v)), **drafts,
                                                        ssm_state_indices=torch.ones(2, 20, dtype=torch.int32))
        with self.assertRaisesRegex(ValueError, "ssm_state_indices: 1 slots of 2 sequences"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given[:4], *(x.view(2, 20, *x.shape[2:]) for x in (q, k, v)),
                                                        initial_state=i.state, ssm_state_indices=torch.tensor([1]))
        with self.assertRaisesRegex(NotImplementedError, "initial_state=None"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given)
        with self.assertRaisesRegex(NotImplementedError, "threshold"):
            vllm.fused_sigmoid_gating_delta_rule_update(*given, threshold=1.0, initial_state=i.state)
        with self.assertRaisesRegex(NotImplementedError, "gk"):
            fla.fused_recurrent_gated_delta_rule(q, k, v, i.a[None], gk=i.a)


class Convolution(unittest.TestCase):
    def check(self, channel_last, channels):
        width, slots = 4, torch.tensor([2, 0, 1], dtype=torch.int32)
        x, weight, bias = torch.randn(3, channels).bfloat16(), *(torch.randn(channels, width + 1).bfloat16().split((width, 1), 1))
        bias = bias[:, 0].contiguous()
        pool = torch.randn(3, width - 1, channels).bfloat16().transpose(1, 2)
        pool = pool if channel_last else pool.contiguous()
        before, rows = pool.clone(), x.clone()
        got = vllm.causal_conv1d_update(x, pool, weight.contiguous(), bias, "silu", slots)
        self.assertEqual(got.data_ptr(), x.data_ptr())
        apart = torch.full_like(rows, float("nan"))  # 0 is vLLM's null block: a row of no sequence
        self.assertIs(vllm.causal_conv1d_update(rows, before.clone(), weight.contiguous(), bias, "silu", slots, out=apart), apart)
        self.assertTrue(torch.equal(apart, got))
        for row in (0, 2):
            window = torch.cat((before[slots[row]], rows[row][:, None]), 1).float()
            want = torch.nn.functional.silu((window * weight.float()).sum(1) + bias.float())
            close(got[row], want, f"row {row}", 6e-2)
            self.assertTrue(torch.equal(pool[slots[row]], window[:, 1:].bfloat16()))
        self.assertTrue(torch.equal(pool[0], before[0]))

    def test_of_aiter(self):
        """Out of place with empty tensors for none; in place of one token a sequence."""
        x, weight, pool, none = torch.randn(2, 6, 2), torch.randn(6, 3), torch.randn(2, 6, 2), torch.empty(0)
        want = sum(torch.cat((pool, x), 2)[:, :, n:n + 2] * weight[:, n, None] for n in range(3))
        out, inner = torch.zeros_like(x), pool.clone()
        aiter.causal_conv1d_update(x, inner, weight, none, out, False, none.int(), none.int(), -1)
        close(out, want, "convolution", 1e-5)
        self.assertTrue(torch.equal(inner, x))
        again = torch.zeros_like(x)
        aiter.causal_conv1d_update(x, pool.clone(), weight, none, again, False, none.int(), none.int(), 0)
        self.assertTrue(torch.equal(again, out))  # of no indices none is padding
        with self.assertRaisesRegex(NotImplementedError, "conv_state: 5 columns"):
            aiter.causal_conv1d_update(x, torch.randn(2, 6, 5), weight, none, out, False, none.int(), none.int(), -1)
        first = x[:, :, 0].clone()
        got = aiter.causal_conv1d_update_single_token(first, pool.clone(), weight, activation="silu")
        close(got, torch.nn.functional.silu(want[:, :, 0]), "one token", 1e-5)
        self.assertEqual(got.data_ptr(), first.data_ptr())
        with self.assertRaisesRegex(NotImplementedError, "query_start_loc"):
            aiter.causal_conv1d_update_single_token(first, pool, weight, query_start_loc=torch.arange(3))

    def test_out_of_an_in_projection(self):
        """Rows of either layout, of which two of three are tokens; q, k, v are convolved, z, b and a copied."""
        hk, hv, d, count = 2, 4, 64, 2
        each, parts = hv // hk, torch.randn(3, 2 * hk * d + 2 * hv * d).bfloat16()
        q, k, v, z = parts.split((hk * d, hk * d, hv * d, hv * d), 1)
        b, a = torch.randn(2, 3, hv).bfloat16()
        mixed = [x.view(3, hk, -1) for x in (q, k, v, z)]
        rows = {"flat": (parts, torch.cat((b, a), 1)),
                "interleaved": (torch.cat(mixed, 2).flatten(1), torch.cat((b.view(3, hk, each), a.view(3, hk, each)), 2).flatten(1))}
        channels = 2 * hk * d + hv * d
        weight, bias, before = torch.randn(channels, 4).bfloat16(), torch.randn(channels).bfloat16(), torch.randn(2, channels, 3).bfloat16()
        window = torch.cat((before, parts[:count, :channels, None]), 2).float()
        want = torch.nn.functional.silu((window * weight.float()).sum(2) + bias.float())
        for layout, (x, ba) in rows.items():
            pool, z_out, core = before.clone(), *torch.full((2, 3, hv, d), 7.0).bfloat16()
            out, b_out, a_out = aiter.fused_reshape_causal_conv1d_update_single_token(
                x, count, hk, hv, d, d, ba, z_out, core, pool, weight, bias, "silu", qkvz_layout=layout)
            close(out, want, layout, 6e-2)
            self.assertTrue(torch.equal(pool, window[:, :, 1:].bfloat16()))
            self.assertTrue(torch.equal(torch.stack((b_out, a_out)), torch.stack((b, a))[:, :count]))
            self.assertTrue(torch.equal(z_out[:count].flatten(1), z[:count]) and not z_out[count:].any())
            self.assertTrue((core[:count] == 7).all() and not core[count:].any())
        with self.assertRaisesRegex(NotImplementedError, "num_accepted_tokens"):
            aiter.fused_reshape_causal_conv1d_update_single_token(x, count, hk, hv, d, d, ba, z_out, core, pool, weight,
                                                                  num_accepted_tokens=torch.ones(2))

    def test_tokens_of_one_sequence(self):
        """A batch of one, whose tokens lie side by side in each channel, is what each of its sequences is in a batch of two."""
        x, weight, pool = torch.randn(2, 70, 3).bfloat16(), torch.randn(70, 4).bfloat16(), torch.randn(3, 70, 3).bfloat16()
        slots, both, alone = torch.tensor([2, 1], dtype=torch.int32), pool.clone(), pool.clone()
        want = sglang.causal_conv1d_update(x, both, weight, None, "silu", conv_state_indices=slots)
        for row in range(2):
            part = slice(row, row + 1)
            got = sglang.causal_conv1d_update(x[part], alone, weight, None, "silu", conv_state_indices=slots[part])
            self.assertTrue(torch.equal(got, want[part]))
            self.assertTrue(torch.equal(vllm.causal_conv1d_update(x[part].clone(), pool.clone(), weight, None, "silu", slots[part]), got))
        self.assertTrue(torch.equal(alone, both))

    def test_both_orders(self):
        self.check(True, 256)
        self.check(False, 70)

    def test_refuses(self):
        x, pool = torch.randn(2, 200, 40).bfloat16(), torch.randn(2, 200, 3).bfloat16()
        with self.assertRaisesRegex(NotImplementedError, "t=40"):
            vllm.causal_conv1d_update(x, pool, torch.randn(200, 4).bfloat16())
        with self.assertRaisesRegex(NotImplementedError, "activation=gelu"):
            vllm.causal_conv1d_update(x[:, :, :1], pool, torch.randn(200, 4).bfloat16(), activation="gelu")
        with self.assertRaisesRegex(NotImplementedError, "initial_state_idx"):
            vllm.causal_conv1d_update(x, pool, torch.randn(200, 4).bfloat16(), initial_state_idx=pool)


if __name__ == "__main__":
    sys.exit(unittest.main())
