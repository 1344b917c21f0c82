"use strict";
// The last minutes, as this page knows them: what the agent remembered, then what came since.
const past = (() => {
  const SECONDS = 300;
  const STEP = 0.9;
  let times = [];
  let series = new Map();

  const keyOf = (gpu, one) => (one === null || one.pod === null ? gpu : [gpu, one.namespace, one.pod, one.container].join("/"));

  function begin(found) {
    const kept = found.history;
    times = kept.seconds_ago.map((age) => found.time - age);
    series = new Map();
    for (const one of kept.series) {
      series.set(keyOf(one.gpu, one), { ...one, percent: [...one.percent], memory: [...one.memory_mib] });
    }
    series.forEach(pad);
  }

  function pad(one) {
    while (one.percent.length < times.length) { one.percent.push(null); one.memory.push(null); }
  }

  function shareOf(device, whole) {
    return whole ? device.utilization_percent : device.share_percent;
  }

  function values(found) {
    const all = new Map();
    for (const gpu of found.gpus) {
      all.set(gpu.uuid, { gpu: gpu.uuid, pod: null, value: gpu.utilization_percent, held: gpu.memory_used_bytes });
    }
    for (const one of found.containers) {
      for (const device of one.gpus) {
        const held = one.whole ? device.memory_measured_bytes : device.memory_used_bytes;
        const who = { gpu: device.uuid, namespace: one.namespace, pod: one.pod, container: one.container };
        all.set(keyOf(device.uuid, one), { ...who, value: shareOf(device, one.whole), held });
      }
    }
    return all;
  }

  function add(found) {
    if (times.length && found.time - times[times.length - 1] < STEP) return;
    times.push(found.time);
    for (const [key, one] of values(found)) {
      if (!series.has(key)) {
        const { value, held, ...who } = one;
        const fresh = { ...who, percent: [], memory: [] };
        times.slice(1).forEach(() => { fresh.percent.push(null); fresh.memory.push(null); });
        series.set(key, fresh);
      }
      const kept = series.get(key);
      kept.percent.push(one.value);
      kept.memory.push(one.held === null ? null : one.held / 1048576);
    }
    series.forEach(pad);
    forget(found.time - SECONDS);
  }

  function forget(before) {
    let old = 0;
    while (old < times.length && times[old] < before) old += 1;
    if (old === 0) return;
    times.splice(0, old);
    for (const [key, one] of series) {
      one.percent.splice(0, old);
      one.memory.splice(0, old);
      if (one.percent.every((value) => value === null)) series.delete(key);
    }
  }

  return {
    SECONDS, begin, add, keyOf, shareOf,
    times: () => times,
    of: (key) => series.get(key),
    on: (gpu) => [...series].filter(([, one]) => one.gpu === gpu && one.pod !== null),
  };
})();
