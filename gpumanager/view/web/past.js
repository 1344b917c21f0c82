"use strict";
// GPU time of the last minutes, as far as this page has seen it or the server has kept it.
const past = (() => {
  const SECONDS = 300;
  const MINUTE = 60;
  const STEP = 0.9;
  let times = [];
  let series = new Map();

  const keyOf = (gpu, one) => [gpu, one.namespace, one.pod, one.container].join("/");
  const shareOf = (device) => (device.whole ? device.utilization_percent : device.share_percent);
  const running = (found) => found.containers.filter((one) => one.state === "confirmed");

  // Earlier samples that the server has kept; where it keeps none, those of this page stay.
  function begin(samples) {
    if (samples.length === 0) return;
    times = [];
    series = new Map();
    samples.forEach(add);
  }

  function add(found) {
    const last = times[times.length - 1];
    if (found.time < last - STEP) {
      times = []; // the node's clock was set back
      series = new Map();
    } else if (found.time - last < STEP) return;
    times.push(found.time);
    for (const one of running(found)) {
      for (const device of one.gpus) {
        const key = keyOf(device.uuid, one);
        if (!series.has(key)) series.set(key, { gpu: device.uuid, percent: [], throttled: [] });
        const kept = series.get(key);
        pad(kept, times.length - 1);
        kept.percent.push(shareOf(device));
        kept.throttled.push(device.throttled_seconds);
      }
    }
    series.forEach((kept) => pad(kept, times.length));
    forget(found.time - SECONDS);
  }

  function pad(kept, length) {
    while (kept.percent.length < length) { kept.percent.push(null); kept.throttled.push(null); }
  }

  function forget(before) {
    const old = times.findIndex((time) => time >= before);
    if (old <= 0) return;
    times.splice(0, old);
    for (const [key, kept] of series) {
      kept.percent.splice(0, old);
      kept.throttled.splice(0, old);
      if (kept.percent.every((value) => value === null)) series.delete(key);
    }
  }

  // Percent of the last minute, or of what is known of it, that launches were throttled. Several
  // threads may wait at once: 100 at most.
  function throttled(key) {
    const kept = series.get(key)?.throttled ?? [];
    const last = times.length - 1;
    const known = kept.map((_, place) => place).filter((place) => kept[place] !== null && times[last] - times[place] <= MINUTE);
    const first = known[0];
    if (known.length < 2 || known[known.length - 1] !== last) return null;
    const seconds = times[last] - times[first];
    return { seconds, percent: Math.max(0, Math.min(100, (100 * (kept[last] - kept[first])) / seconds)) };
  }

  return {
    SECONDS, begin, add, keyOf, shareOf, running, throttled,
    times: () => times,
    of: (key) => series.get(key),
    on: (gpu) => [...series].filter(([, kept]) => kept.gpu === gpu),
  };
})();
