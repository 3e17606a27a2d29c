"""Parts that do not fit together, and options without meaning, are refused in a sentence."""

import pytest

from tests.pins.combinations import parse_line
from tests.pins.recording import set_up

#: Under a strategy and its platform: swaps behind colons, options and the model, as the pinned runs
#: are written; and what the refusal says.
REFUSED = """
bnsgcn a100
  communication.rate=-0.1 | communication.rate is -0.1; it is a probability, from 0 to 1
  communication.rate=1.5 | communication.rate is 1.5; it is a probability, from 0 to 1
  model=gat | model 'gat' computes on edges, which cannot be scaled
  model=ggcn | model 'ggcn' computes on edges
  :sampler=multi-hop | units of sampler 'multi-hop' compute remote
distdgl-full-graph a100
  :communication=hongtu:memory=hongtu | have a block for each layer
distdgl-v2 a5000
  placement.cpu_share=-0.1 | give a part of the seeds, 0 to 1
  placement.cpu_share=1.5 | give a part of the seeds, 0 to 1
distgnn cluster
  communication.delay=-1 | communication.delay is -1; make it 0 epochs
hongtu a100
  :memory=hongtu-im | on the devices, but communication 'hongtu' loads it
  :communication=halo | on the host, but communication 'halo' does not
  sampler.chunks_per_partition=-1 | give each partition at least 1 chunk
hongtu-im a100
  :communication=none | uses 4 devices, each with its own vertex data
hpgnn a5000
  layers=2 | trains on an FPGA, and platform epyc7763x2-4xa5000 has none
  :placement=single | name a platform that has FPGAs
hpgnn u250
  model=gat | does not aggregate by an associative sum
  placement.board=u251 | no board called 'u251'
  placement.n=16 placement.m=256 | LUTs, and a die of u250 has
  placement.n=4 | give both, or neither
  kernel.datapath=chip | kernel.datapath=chip is HyScale-GNN's
  kernel.n=8 | placement 'hpgnn' chooses the design
  :placement=single | trains on the host; use a placement that trains
  :sampler=neighbour | reads the edge layout of sampler 'hpgnn'
  :sampler=saint | reads the edge layout of sampler 'hpgnn'
  :sampler=hpgnn-saint sampler.budget=-1 | sampler.budget is -1
  :sampler=hpgnn-layerwise sampler.budgets=5 | give 2 counts from 1 to
  :sampler=hpgnn-layerwise sampler.budgets=5,x | give 2 counts from 1 to
hyscale:kernel=hpgnn:sampler=hpgnn u250
  kernel.n=6 | kernel.n = 6 and kernel.m = 2048 are a whole board's
  kernel.n=64 | DSPs, and a die of u250 has 3,072
hyscale a5000
  placement.accelerators=5 | placement.accelerators is 5, and platform epyc7763x2-4xa5000 has 4
  placement.accelerators=-1 | placement.accelerators is -1
  placement.skew=-2.0 | placement.skew is -2.0
  :memory=hongtu | memory 'hongtu' works for full-graph training
  :communication=hongtu communication.overlap=true | needs full graphs with vertex data on the host
  :sampler=saint model=gat sampler.presampled=2 | 'gat' does not sum rows. Choose gcn
mixgcn a100
  model=gat | layer 1 of model 'gat' needs all features of an edge
  model=ggcn | Choose gcn, sage, gin or commnet, or a placement
  :communication=halo | Choose communication 'mixgcn'
  :placement=hongtu | has no ranges of features. Choose placement
  :sampler=full-graph | shares out every round by features
  :placement=hongtu:communication=halo | lets the placement share out a stage
  sampler.stages=401 | choose 1 to 400, the number of vertices, or 0
  sampler.stages=-1 | choose 1 to 400
  sampler.stages=2 sampler.schedule=naive | naive has one stage
  placement.row_groups=3 | does not divide the 4 devices that aggregate
  placement.sparse=sparse | leaves no sparse device then
  placement.sparse=apart placement.sparse_devices=4 | no dense
  placement.accelerators=-1 | such devices; give 1 to 4
  :kernel=spu | aggregates on gpu0, a gpu. Choose
mixgcn:kernel=spu spu
  kernel.wanted=0 | kernel.wanted is 0.0; it is a share
neugraph a100
  model=gat | needs all in-edges at once
  :communication=hongtu | keeps rows of one piece for the next
  :memory=hongtu-recompute | recomputes layer 1 from all input rows
  :memory=resident:communication=halo | memory 'resident' keeps rows on the devices
  :sampler=hongtu:communication=hongtu model=gat | 'hongtu' overwrites input rows that memory
  sampler.chunks_per_device=-1 | chunks_per_device is -1; give from 1 to 400, or
neutronstar a100
  :communication=bnsgcn | Choose communication 'halo', or a sampler
  :communication=hongtu:memory=hongtu | have a block for each layer
p3 a5000
  model=gat | needs whole rows. Choose gcn, sage, gin or commnet
  :communication=vanilla | keeps vertex data on the devices
  :communication=none | moves whole rows; choose communication 'p3'
  :placement=data-parallel | gives devices whole rows; choose placement
  :memory=host | keeps vertex data on the host
pagraph a5000
  memory.presampled=0 | memory.presampled is 0; draw 1 epoch or more
  :communication=hongtu | memory 'pagraph' caches rows on the devices
pipegcn a100
  communication.staleness=-1 | communication.staleness is -1; let rows arrive 0 epochs
  communication.decay_rate=1 | communication.decay_rate is 1.0; it is a share of what
reference/mini-batch a5000
  placement.device=gpu9 | has host, gpu0, gpu1, gpu2, gpu3; name one of these
  placement.device=gpu1 placement.on_host=true | both say what computes; give one
reference:sampler=saint a5000
  sampler.presampled=-1 | sampler.presampled is -1; give a num
  sampler.presampled=10001 | sampler.presampled is 10001; give a num
roc a100
  :communication=pipegcn | Choose communication 'halo', or memory 'resid
  :communication=bnsgcn | Choose communication 'halo', or memory 'resid
  :communication=sancus | Choose communication 'halo', or memory 'resid
  sampler.learned=-1 | sampler.learned is -1; give a number
  sampler.learned=101 | sampler.learned is 101; give a number
salient a5000
  sampler.workers=-1 | sampler.workers is -1 for each of 4 devices
  sampler.workers=33 | sampler.workers is 33 for each of 4 devices, and 'host' of platform
  sampler.workers=129 | has 128 cores; give 1 to 32, or 0 for all
sancus a100
  communication.staleness=-1 | communication.staleness is -1; let a copy be 0 epochs
  communication.change=-1 | communication.change is -1; let a copy be used again up to
  communication.metric=embeddings communication.stale_gradients=true | wait for as many epochs as
"""


def list_refused():
    for row in REFUSED.strip().splitlines():
        if not row.startswith(" "):
            strategy, platform = row.split()
            continue
        words, sentence = row.strip().split(" | ")
        swaps, rest = (words + " ").split(" ", 1) if words.startswith(":") else ("", words)
        name, slash, mode = strategy.partition("/")
        yield f"{name}{swaps}{slash}{mode} {platform} sbm {rest}".strip(), sentence


@pytest.mark.parametrize(("line", "sentence"), [*list_refused()])
def test_what_cannot_be_is_refused_in_a_sentence(line, sentence):
    bundle, setting = set_up(parse_line(line))
    refusal = bundle.refusal(setting)
    assert refusal is not None
    assert sentence in refusal
    assert refusal.endswith(".")
    assert "\n" not in refusal
