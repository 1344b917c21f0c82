"use strict";
// Draws one document of the extender: sums, pods that wait, some of the nodes, quotas.
(() => {
  const { el, get, say, mark, number, bytes, percent, part, clock, date, plural, width, figure, bar, makeCell, updateCell, keyed } = look;

  const timeOf = (one) => part(one.cores_granted_percent, 100 * one.gpus);
  const memoryOf = (one) => part(one.memory_granted_bytes, one.memory_bytes);
  const gpusOf = (cores) => number(cores / 100, cores % 100 ? 1 : 0);

  function tiles(found) {
    const all = found.totals;
    figure(get("nodes-count"), number(all.nodes));
    say(get("nodes-more"), plural(all.pods, "pod"));
    figure(get("gpus-count"), number(all.gpus));
    say(get("gpus-more"), `${number(all.gpus_free)} free${all.gpus_closed ? `, ${number(all.gpus_closed)} unavailable` : ""}`);
    figure(get("time"), percent(Math.round(timeOf(all))));
    say(get("time-more"), `${gpusOf(all.cores_granted_percent)} GPUs' worth`);
    figure(get("memory"), percent(Math.round(memoryOf(all))));
    say(get("memory-more"), `${bytes(all.memory_granted_bytes)} of ${bytes(all.memory_bytes)}`);
    figure(get("waiting-count"), number(found.waiting.total));
    say(get("waiting-more"), found.leads ? "no node fits yet" : "known to the leader only");
  }

  // What is not shown is told in words.
  function left(id, shown, total, words) {
    get(id).hidden = shown >= total;
    say(get(id), `${number(shown)} of ${number(total)} are shown${words}`);
  }

  function makeModel() {
    const row = { name: el("td"), nodes: el("td", { class: "count", "data-of": "nodes" }), gpus: el("td", { class: "count", "data-of": "GPUs" }),
      free: el("td", { class: "count", "data-of": "free" }), time: bar(), timeText: el("span"), memory: bar("memory"), memoryText: el("span") };
    row.node = el("tr", {}, row.name, row.nodes, row.gpus, row.free, el("td", { "data-of": "time" }, row.timeText, row.time.node),
      el("td", { class: "memory", "data-of": "memory" }, row.memoryText, row.memory.node));
    return row;
  }

  function updateModel(row, { one }) {
    say(row.name, one.model);
    say(row.nodes, number(one.nodes));
    say(row.gpus, number(one.gpus));
    say(row.free, number(one.gpus_free));
    figure(row.timeText, percent(Math.round(timeOf(one))));
    width(row.time.fill, timeOf(one));
    figure(row.memoryText, percent(Math.round(memoryOf(one))));
    width(row.memory.fill, memoryOf(one));
  }

  function cellOf(gpu) {
    const label = `GPU ${gpu.index}, ${gpu.model}: ${gpu.cores_granted_percent} % of its time and ${bytes(gpu.memory_granted_bytes)} of ${bytes(gpu.memory_bytes)} granted to ${plural(gpu.containers, "container")}${!gpu.healthy ? "; unavailable: nothing new is placed there" : ""}`;
    const text = gpu.containers ? `${gpu.cores_granted_percent} %` : !gpu.healthy ? "unavailable" : "free";
    return { key: gpu.uuid, name: String(gpu.index), text, time: gpu.cores_granted_percent, memory: memoryOf(gpu), closed: !gpu.healthy, label };
  }

  function makeNode() {
    const row = { name: el("b"), what: el("small"), trouble: el("span", { class: "badge bad" }), cells: el("ul", { class: "cells" }),
      summary: el("summary"), pods: el("ul"), more: el("small") };
    row.details = el("details", {}, row.summary, row.pods, row.more);
    row.node = el("li", {}, el("div", { class: "who" }, row.name, row.what, row.trouble), row.cells, row.details);
    return row;
  }

  function updateNode(row, { one }) {
    const models = [...new Set(one.gpus.map((gpu) => gpu.model))].join(", ");
    say(row.name, one.node);
    say(row.what, models ? `${one.gpus.length} × ${models}` : "");
    say(row.trouble, one.trouble);
    row.trouble.hidden = !one.trouble;
    keyed(row.cells, one.gpus.map(cellOf), makeCell, updateCell);
    row.details.hidden = one.containers.length === 0;
    say(row.summary, plural(one.containers.length + one.containers_left_out, "pod"));
    say(row.more, `and ${number(one.containers_left_out)} more: those that match a search come first`);
    row.more.hidden = one.containers_left_out === 0;
    keyed(row.pods, one.containers.map((pod, place) => ({ key: `${pod.namespace}/${pod.pod}/${place}`, pod })), makePod, () => {});
  }

  function makePod({ pod }) {
    const where = pod.gpus === null ? "GPU not known" : `GPU ${pod.gpus.map((gpu) => gpu.index).join(", ")}`;
    return { node: el("li", { class: "pod" }, el("b", { text: `${pod.namespace}/${pod.pod}` }),
      el("small", { text: `${gpusOf(pod.cores_granted_percent)} on ${where}${pod.claim === null ? "" : `, claim ${pod.claim}`}` })) };
  }

  function makeWaiting({ pod }) {
    const head = el("div", { class: "head" }, el("b", { text: `${pod.namespace}/${pod.pod}` }),
      el("small", { text: `0 of ${plural(pod.nodes, "node")} fit; last scheduling attempt ${date(pod.time)}, ${clock(pod.time)}` }));
    const why = pod.reasons.flatMap((one) => [el("span", { text: number(one.nodes) }),
      el("p", {}, one.reason, el("small", { text: ` ${one.example}: ${one.detail}` }))]);
    const trouble = pod.trouble ? [el("span"), el("p", { text: pod.trouble })] : [];
    return { node: el("li", {}, head, el("div", { class: "why" }, ...trouble, ...why)) };
  }

  function makeQuota() {
    const row = { who: el("td"), model: el("td"), text: el("span"), bar: bar() };
    row.node = el("tr", {}, row.who, row.model, el("td", {}, row.text, row.bar.node));
    return row;
  }

  function updateQuota(row, { one }) {
    say(row.who, one.namespace);
    say(row.model, one.model);
    say(row.text, `${number(one.gpus_used, one.gpus_used % 1 ? 1 : 0)} of ${number(one.gpus)}`);
    width(row.bar.fill, part(one.gpus_used, one.gpus));
  }

  function leader(found) {
    const pill = get("leader");
    pill.hidden = false;
    say(pill, found.leads ? "leader" : `standby; leader: ${found.leader || "none"}`);
  }

  function draw(found) {
    say(get("about"), `gpu-manager ${found.version}`);
    leader(found);
    tiles(found);
    keyed(get("models"), found.models.map((one) => ({ key: one.model, one })), makeModel, updateModel);
    left("models-left", found.models.length, found.totals.models, ": the most frequent");
    get("waiting-part").hidden = found.waiting.pods.length === 0;
    keyed(get("waiting"), found.waiting.pods.map((pod) => ({ key: `${pod.namespace}/${pod.pod} ${pod.time}`, pod })), makeWaiting, () => {});
    keyed(get("nodes"), found.nodes.map((one) => ({ key: one.node, one })), makeNode, updateNode);
    left("waiting-left", found.waiting.pods.length, found.waiting.total, ", the newest; search for others");
    get("nothing").hidden = found.nodes.length > 0;
    const all = !found.search && found.state === "all";
    say(get("nothing"), all ? "No node of this cluster reports GPUs." : "Nothing here matches.");
    say(get("place"), `${plural(found.matches, "node")}${found.pages > 1 ? `, page ${number(found.page)} of ${number(found.pages)}` : ""}`);
    get("page").hidden = found.pages < 3;
    get("page").max = found.pages;
    get("before").disabled = found.page <= 1;
    get("after").disabled = found.page >= found.pages;
    const quota = found.quota;
    get("quota-part").hidden = quota === null || (quota.rows.length === 0 && quota.understood);
    if (quota === null) return;
    left("quota-left", quota.rows.length, quota.total, "; search for others");
    keyed(get("quota"), quota.rows.map((one) => ({ key: `${one.namespace}/${one.model}`, one })), makeQuota, updateQuota);
    get("quota-trouble").hidden = quota.understood;
    say(get("quota-trouble"), quota.trouble);
  }

  const EVERY_MS = 3000;
  const wanted = { search: "", state: "all", sort: "name", page: 1 };
  const { seek, typed } = poll.start({
    server: "extender",
    path: () => `api/cluster?${new URLSearchParams(wanted)}`,
    take: (found) => { wanted.page = found.page; return EVERY_MS; },
    draw,
  });
  const on = (id, kind, change, wait = seek) => get(id).addEventListener(kind, (event) => { Object.assign(wanted, change(event.target)); wait(); });
  on("search", "input", (field) => ({ search: field.value.trim(), page: 1 }), typed);
  on("nodes-state", "change", (field) => ({ state: field.value, page: 1 }));
  on("sort", "change", (field) => ({ sort: field.value, page: 1 }));
  on("before", "click", () => ({ page: wanted.page - 1 }));
  on("after", "click", () => ({ page: wanted.page + 1 }));
  on("page", "change", (field) => {
    const page = Math.round(Number(field.value));
    field.value = "";
    return page >= 1 ? { page: Math.min(page, Number(field.max)) } : {};
  });
})();
