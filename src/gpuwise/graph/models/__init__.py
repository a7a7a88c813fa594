"""Models by name: the libraries, Hugging Face configurations, ONNX files and the user's own code."""

FORMS = "torchvision:NAME, timm:NAME, hf:CONFIG.json or hf:NAME, FILE.py:FUNCTION, MODULE:FUNCTION, or FILE.onnx"
