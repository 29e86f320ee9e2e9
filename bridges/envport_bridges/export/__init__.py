"""Exporting recorded episodes: as conversations for `SFTTrainer`, and as trajectories of Harbor (ATIF).

from envport_bridges.export import load_export

trainer = SFTTrainer(model=..., args=..., train_dataset=load_export("episodes.parquet"))
"""

from envport_bridges.export.atif import ATIF_VERSION, atif_document
from envport_bridges.export.conversation import ConversationForm, conversation
from envport_bridges.export.dataset import dataset_features, load_export
from envport_bridges.export.files import write_atif, write_jsonl, write_parquet

__all__ = [
    "ATIF_VERSION",
    "ConversationForm",
    "atif_document",
    "conversation",
    "dataset_features",
    "load_export",
    "write_atif",
    "write_jsonl",
    "write_parquet",
]
