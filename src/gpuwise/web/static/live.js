// Events as they arrive; a lost connection is made again, and continues after the last event that was received.
import { ApiError, dropSession, events, get, session } from "./api.js";
import { forget, pollSoon, startPolling } from "./poll.js";
import { changed, setConnection, state } from "./state.js";

const SILENCE_MS = 45_000; // the server sends something every 15 s
const RETRY_MS = [500, 1000, 2000, 5000, 10_000];
const MOST_EVENTS = 1000;
const AGAIN = new Error("connect again");
const SESSION_ENDED = "The session has ended: it was logged out, a day old, or the service was restarted. Log in again.";

let lastSeq = null;
let entered = () => {};
let hangUp = () => {};

const take = (batch) => {
  if (!batch.length) return;
  state.events = [...state.events, ...batch].slice(-MOST_EVENTS);
  lastSeq = batch.at(-1).seq;
  changed();
  pollSoon();
};

const opened = () => {
  setConnection("live");
  pollSoon();
};

const listen = async () => {
  const abort = new AbortController(), { signal } = abort;
  hangUp = () => abort.abort(AGAIN);
  let watchdog = null;
  const resetWatchdog = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(hangUp, SILENCE_MS);
  };
  try {
    resetWatchdog();
    await get("/v1/status", signal); // checks the session once: the server counts failures
    const headers = lastSeq === null ? {} : { "Last-Event-ID": String(lastSeq) };
    for await (const batch of events("/v1/events", { signal, headers, onOpen: opened })) {
      resetWatchdog();
      take(batch);
    }
  } finally {
    clearTimeout(watchdog);
  }
};

const untilEntered = () => new Promise((resolve) => { entered = resolve; });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const keepListening = async () => {
  for (let failures = 0; ; failures += 1) {
    const secret = session();
    const error = await listen().catch((caught) => caught);
    if (state.connection === "live") failures = 0;
    if (error === AGAIN) {
      setConnection("connecting");
    } else if (error?.status === 401) {
      dropSession(secret);
      setConnection("login", secret ? SESSION_ENDED : "");
      await untilEntered();
    } else {
      setConnection("lost", error instanceof ApiError ? error.message : "");
      await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    }
  }
};

export const start = () => {
  startPolling(() => hangUp());
  keepListening();
};

// The user has logged in.
export const enter = () => {
  setConnection("connecting");
  entered();
};

// The user has logged out: none of their data stays.
export const leave = () => {
  forget();
  state.events = [];
  lastSeq = null;
  hangUp();
};
