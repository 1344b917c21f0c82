from enum import Enum

DeviceType = Enum("DeviceType", ("CPU", "CUDA"))
