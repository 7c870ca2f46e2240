// @ts-check
// The only module of the pages that names where the package is.
export { openBroker, deleteBroker, isBrokerError, SystemMessage } from "../pkg/dist/index.js";
export { httpTransport } from "../pkg/dist/http.js";
export { testClock } from "../pkg/dist/testing.js";

/** @typedef {import("../pkg/dist/index.js").Broker} Broker */
/** @typedef {import("../pkg/dist/index.js").Transaction} Transaction */
/** @typedef {import("../pkg/dist/index.js").Message} Message */
/** @typedef {import("../pkg/dist/index.js").ConversationEndpoint} ConversationEndpoint */
/** @typedef {import("../pkg/dist/index.js").QueueInfo} QueueInfo */
/** @typedef {import("../pkg/dist/index.js").EndResult} EndResult */
/** @typedef {import("../pkg/dist/index.js").FailedMessage} FailedMessage */
/** @typedef {import("../pkg/dist/index.js").Activation} Activation */
/** @typedef {import("../pkg/dist/index.js").DelayedMessage} DelayedMessage */
/** @typedef {import("../pkg/dist/index.js").DelayedMessageStore} DelayedMessageStore */
/** @typedef {import("../pkg/dist/index.js").BrokerStats} BrokerStats */
/** @typedef {import("../pkg/dist/index.js").TransmissionRow} TransmissionRow */
/** @typedef {import("../pkg/dist/testing.js").TestClock} TestClock */
