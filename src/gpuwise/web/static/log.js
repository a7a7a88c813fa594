// A job's log as it grows.
import { chunks } from "./api.js";
import { bytes } from "./format.js";
import { ENDED } from "./parts.js";
import { state } from "./state.js";

const FIRST_BYTES = 200_000;
const MOST_CHARACTERS = 400_000;
const RETRY_MS = 1000;
const FINAL = [401, 403, 404, 409]; // another request would get the same answer

let running = null;

const append = (box, text) => {
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  box.append(text);
  let length = box.textContent.length;
  while (length > MOST_CHARACTERS && box.firstChild !== box.lastChild) {
    length -= box.firstChild.data.length;
    box.firstChild.remove();
  }
  if (atEnd) box.scrollTop = box.scrollHeight;
};

// Reads from near the end until the job has ended. A lost connection is continued at the byte that it had reached.
const follow = async (job, box, signal) => {
  const decoder = new TextDecoder();
  const path = `/v1/jobs/${encodeURIComponent(job)}/logs?follow=true&offset=`;
  let at = -FIRST_BYTES;
  const onOpen = (headers) => {
    if (at < 0) at = Number(headers.get("X-Log-Start"));
    if (at > 0 && !box.firstChild) append(box, `… for the ${bytes(at)} before this, run: gpuwise logs ${job}\n`);
  };
  while (!signal.aborted) {
    try {
      for await (const chunk of chunks(path + at, { signal, onOpen })) {
        at += chunk.length;
        append(box, decoder.decode(chunk, { stream: true }));
      }
      if (ENDED.includes(state.job?.status)) return;
    } catch (error) {
      if (FINAL.includes(error.status)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
};

export const stopLog = () => {
  running?.abort.abort();
  running = null;
};

// Follows a job's log in a box, unless it does already.
export const showLog = (job, box) => {
  if (running?.box === box) return;
  stopLog();
  running = { box, abort: new AbortController() };
  follow(job, box, running.abort.signal);
};
