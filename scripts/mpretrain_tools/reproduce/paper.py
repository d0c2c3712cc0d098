"""What the paper prints beyond the main table (rows.py): its Apollo-E, memory and runtime tables,
and its architectures.
"""

# Optimizer-state bytes a parameter and perplexity with BF16 weights, for 130M and 350M. None:
# nothing printed.
APOLLO_E = {
    "AdamW, BF16 state": (("4.000", 23.587), ("4.000", 19.156)),
    "AdamW, FP32 state": (("8.000", 22.615), ("8.000", 15.955)),
    "Apollo-E mini, r = 1": (("4.739", 22.126), ("4.362", 16.752)),
    "Apollo-E channel, r = 1": (("4.739", 22.085), ("4.362", 16.683)),
    "Apollo-E channel, r = 4": (("4.754", 21.979), ("4.377", 16.550)),
    "Apollo-E channel, r = 8": (("4.775", 21.997), ("4.397", 16.529)),
    "Apollo-E channel, r = 16": (("4.817", 21.995), ("4.438", 16.576)),
    "M+Adam, dense": (("6.000", 22.032), ("6.000", 16.607)),
}

# (size, regime): seconds an update of AdamW and of M+Adam, H200s. End to end, evaluation and
# logging included.
SECONDS_PER_UPDATE = {
    ("350m", "FP8/FP8"): (0.359, 0.384, 4),
    ("130m", "FP8/FP8"): (0.212, 0.226, 2),
    ("60m", "FP8/FP8"): (0.134, 0.150, 2),
    ("350m", "BF16/FP8"): (0.215, 0.288, 4),
    ("130m", "BF16/FP8"): (0.270, 0.304, 1),
    ("60m", "BF16/FP8"): (0.155, 0.185, 1),
    ("350m", "BF16/BF16"): (0.212, 0.285, 4),
    ("130m", "BF16/BF16"): (0.271, 0.313, 1),
    ("60m", "BF16/BF16"): (0.136, 0.164, 1),
    ("1b", "BF16/FP8"): (3.893, 4.232, 4),
    ("1b", "BF16/BF16"): (3.726, 3.957, 4),
}
# Printed overhead of M+Adam over AdamW, of whole wall times, in per cent.
OVERHEAD = {
    ("350m", "FP8/FP8"): 6.98,
    ("130m", "FP8/FP8"): 7.04,
    ("60m", "FP8/FP8"): 12.42,
    ("350m", "BF16/FP8"): 34.05,
    ("130m", "BF16/FP8"): 12.51,
    ("60m", "BF16/FP8"): 19.28,
    ("350m", "BF16/BF16"): 34.59,
    ("130m", "BF16/BF16"): 15.69,
    ("60m", "BF16/BF16"): 20.47,
    ("1b", "BF16/FP8"): 8.72,
    ("1b", "BF16/BF16"): 6.21,
}
# size: seconds an update of AdamW + SR in BF16/BF16 and its overhead over AdamW in per cent.
STOCHASTIC_ROUNDING = {"350m": (0.304, 43.62), "130m": (0.319, 18.00), "60m": (0.169, 24.37)}

# size: hidden, intermediate, layers, heads, steps at 1x.
ARCHITECTURE = {
    "60m": (512, 1376, 8, 8, 10_000),
    "130m": (768, 2048, 12, 12, 20_000),
    "350m": (1024, 2736, 24, 16, 60_000),
    "1b": (2048, 5461, 24, 32, 100_000),
}

# Nominal bytes a parameter: master weights, states, both, and with the BF16 gradient.
MEMORY = {
    "AdamW, FP32 master": (4, 4, 8, 10),
    "M+Adam, BF16 master": (2, 6, 8, 10),
    "M+Adam, FP8 master": (1, 6, 7, 9),
    "AdamW + SR, BF16 master": (2, 4, 6, 8),
}
# size: parameters, and those that are neither embedding nor head. Inferred: the Apollo-E byte
# counts pin the vocabulary of 32,000 and the untied head.
PARAMETERS = {
    "60m": (58_073_600, 25_305_600),
    "130m": (134_105_856, 84_953_856),
    "350m": (367_969_280, 302_433_280),
    "1b": (1_339_082_752, 1_208_010_752),
}
