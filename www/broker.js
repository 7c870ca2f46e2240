// @ts-check
// The only module of the page that names where the package is.
export { openBroker, deleteBroker, isBrokerError, SystemMessage } from "../pkg/dist/index.js";

/** @typedef {import("../pkg/dist/index.js").Broker} Broker */
/** @typedef {import("../pkg/dist/index.js").Transaction} Transaction */
/** @typedef {import("../pkg/dist/index.js").Message} Message */
/** @typedef {import("../pkg/dist/index.js").ConversationEndpoint} ConversationEndpoint */
/** @typedef {import("../pkg/dist/index.js").QueueInfo} QueueInfo */
/** @typedef {import("../pkg/dist/index.js").EndResult} EndResult */
/** @typedef {import("../pkg/dist/index.js").FailedMessage} FailedMessage */
/** @typedef {import("../pkg/dist/index.js").Activation} Activation */
