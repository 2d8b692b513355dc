# SPDX-License-Identifier: Apache-2.0
# Who may include whom: layers.cmake checks it, and ../reach.cmake reads from it what a change can reach.
set(may_core "")
# Pictures: of plans, and of runs.
set(may_plot core)
# The files that llama.cpp reads.
set(may_gguf core)
set(may_hdf5 core)
set(may_kernels core)
set(may_deck core)
# Configurations of other programs, and what folders of data sets say of themselves.
set(may_yaml core)
# Configurations of other programs become decks.
set(may_migrate core deck yaml)
# Spans, wherever time is spent.
set(may_trace core)
set(may_comm core trace)
set(may_schedule core)
set(may_jinja core)
set(may_model core kernels deck)
set(may_metrics core comm)
set(may_plan core deck model plot schedule)
set(may_world core comm plan)
# Looks at a job from outside, with the communicators of the run: nothing below train needs it.
set(may_preflight core deck comm model kernels plan)
set(may_tokenizer core)
set(may_data core hdf5 deck trace comm jinja tokenizer yaml)
# What a model is asked: no tensors, no ranks.
set(may_tasks core data deck jinja tokenizer)
set(may_shard core kernels comm model plan schedule world)
# The table of parameters tells which of them decay.
set(may_optim core kernels deck model plan schedule shard)
set(may_checkpoint core hdf5 deck trace comm)
set(may_weights core comm model)
# What adapters rest on: frozen, packed and merged weights.
set(may_base core checkpoint comm deck kernels model plan shard weights)
# Reads what a run left, and nothing of the run itself.
set(may_report core plot deck metrics checkpoint)
set(folders core gguf plot hdf5 kernels deck yaml migrate trace comm schedule jinja model metrics plan world preflight tokenizer data tasks shard optim checkpoint weights base report)
set(may_train ${folders})
list(REMOVE_ITEM may_train hdf5)
list(APPEND folders train)
# In modules/ the layer is the kind of module; what is left, registry.cpp, names all of them.
set(may_models model)
set(may_adapters core deck model)
set(may_formats core data)
set(may_optimizers core kernels model optim plan shard)
