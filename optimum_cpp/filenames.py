"""Names of the files that an output folder holds beside the model's own."""

CONFIG_NAME = "cpp_config.json"
CONTRACT_NAME = "reliability_contract.json"
MANIFEST_NAME = "split_manifest.json"
SIGNATURE_NAME = "reliability_contract.json.sig"
CARD_NAME = "README.md"
HANDLER_NAME = "handler.py"
REQUIREMENTS_NAME = "requirements.txt"
