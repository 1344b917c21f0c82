"""What the driver says of itself and of the device: each attribute, name, UUID."""

import ctypes

from driver import Driver, Failed
from say import say, shim_loaded

MOST = 160
NAME_BYTES = 256


def main():
    driver = Driver()
    answers = {"version": driver.get(ctypes.c_int, "cuDriverGetVersion").value}
    name = ctypes.create_string_buffer(NAME_BYTES)
    driver.call("cuDeviceGetName", name, NAME_BYTES, driver.device)
    answers["name"] = name.value.decode()
    answers["uuid"] = driver.uuid()
    for attribute in range(1, MOST):
        try:
            answers[str(attribute)] = driver.attribute(attribute)
        except Failed as failed:
            answers[str(attribute)] = f"error {failed.number}"
    say(shim=shim_loaded(), answers=answers)


if __name__ == "__main__":
    main()
