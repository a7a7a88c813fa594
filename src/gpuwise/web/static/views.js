// Which view a hash names, what it is made of, and which lists it needs.
import { cluster } from "./cluster.js";
import { ended } from "./ended.js";
import { feed } from "./feed.js";
import { job } from "./job.js";
import { queue } from "./queue.js";

const STATUS = { status: "/v1/status" };
const QUEUE = { queue: "/v1/queue" };
const NODES = { nodes: "/v1/nodes" };
const OVER = { ended: "/v1/jobs?status=succeeded,failed,cancelled&limit=200" };

const ofJob = (id) => {
  const path = `/v1/jobs/${id}`;
  return { job: path, why: `${path}/why`, attempts: `${path}/attempts` };
};

export const TABS = [
  ["#/", "Overview"],
  ["#/cluster", "Cluster"],
  ["#/queue", "Queue"],
  ["#/ended", "Ended"],
  ["#/events", "Events"],
];

const VIEWS = {
  "#/": { lists: { ...NODES, ...OVER }, show: (state) => [cluster(state), queue(state), ended(state, 10), feed(state, 10)] },
  "#/cluster": { lists: NODES, show: cluster },
  "#/queue": { lists: {}, show: queue },
  "#/ended": { lists: OVER, show: ended },
  "#/events": { lists: {}, show: feed },
};

// The view for a hash; null for one that names none.
export const viewOf = (hash) => {
  const address = hash || "#/";
  const [, id] = /^#\/job\/([0-9-]+)$/.exec(address) ?? [];
  const found = id ? { id, lists: ofJob(id), show: job } : VIEWS[address];
  return found ? { address, ...found, lists: { ...STATUS, ...QUEUE, ...found.lists } } : null;
};
