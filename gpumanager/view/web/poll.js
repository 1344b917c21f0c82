"use strict";
// Asks the server again and again, and draws what it answers.
const poll = (() => {
  const { get, ask, state, clock, watchAge } = look;
  const TYPED_MS = 250;
  const AGAIN_MS = 2000;
  const LATE_MS = 2000;

  // server: what answers, in words. path: what to ask for now. take: keeps an answer, and returns
  // the milliseconds until the next question. before: to be waited for when the page is opened or
  // seen again. again: draws the last answer as the reader now wants it.
  function start({ server, path, take, draw, before = async () => {} }) {
    let timer = 0;
    let asking = 0;
    let heard = 0;
    let every = 1000;
    let newest = null;
    let paused = false;
    let live = false;
    let sought = false;

    function later(milliseconds) {
      clearTimeout(timer);
      timer = setTimeout(tell, milliseconds);
    }

    function lost(error) {
      live = false;
      get("all").classList.add("old");
      const why = error instanceof TypeError ? `the ${server} does not answer` : error.message;
      state("bad", newest === null ? why : `no answer since ${clock(heard / 1000)}`);
      later(AGAIN_MS);
    }

    // What was asked last counts, whichever answer comes first.
    async function tell() {
      clearTimeout(timer);
      asking += 1;
      const mine = asking;
      try {
        const found = await ask(path());
        if (mine !== asking) return;
        if (newest === null || found.time !== newest.time) heard = Date.now();
        newest = found;
        every = take(found);
        get("all").classList.remove("old");
        if (!paused || sought) draw(found);
        sought = false;
        live = true;
        if (Date.now() - heard <= every + LATE_MS) state("good", paused ? "live, paused" : "live");
        if (!document.hidden) later(every);
      } catch (error) {
        if (mine === asking) lost(error);
      }
    }

    async function begin() {
      clearTimeout(timer);
      if (document.hidden) return;
      try {
        await before();
      } catch (error) {
        lost(error);
        return;
      }
      tell();
    }

    function pause() {
      paused = !paused;
      get("pause").setAttribute("aria-pressed", String(paused));
      get("pause").textContent = paused ? "Resume" : "Pause";
      if (live) state("good", paused ? "live, paused" : "live");
      if (!paused && newest !== null) draw(newest);
    }

    get("pause").addEventListener("click", pause);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      const search = get("search");
      if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
      if (event.key === "p" && !typing) pause();
      if (event.key === "Escape" && event.target === search) { search.value = ""; search.dispatchEvent(new Event("input")); }
    });
    document.addEventListener("visibilitychange", begin);
    watchAge(() => heard, () => (live && !paused && !document.hidden ? every + LATE_MS : 0));
    begin();
    const seek = (wait) => { sought = true; later(wait); };
    return { seek: () => seek(0), typed: () => seek(TYPED_MS) };
  }

  return { start };
})();
