//! `RawBroker`'s share in transmission.

use std::rc::Rc;

use js_sys::Promise;
use num_traits::ToPrimitive;
use wasm_bindgen::prelude::*;

use super::broker::RawBroker;
use super::error::{promise, to_js};
use super::transport::GivenTransport;
use crate::Transmitted;
use crate::body::Value;
use crate::record::{float, value};

#[wasm_bindgen]
impl RawBroker {
    /// Adds a route; gives the number to remove it by.
    pub fn route(&self, service: &str, transport: JsValue, batch: f64) -> std::result::Result<f64, JsValue> {
        let (transport, batch) = (Rc::new(GivenTransport(transport)), batch.to_u64().unwrap_or(u64::MAX));
        self.member.broker.route(service, transport, batch).map(float).map_err(|error| to_js(&error))
    }

    /// Removes a route.
    #[wasm_bindgen(js_name = removeRoute)]
    pub fn remove_route(&self, number: f64) {
        number.to_u64().into_iter().for_each(|number| self.member.broker.remove_route(number));
    }

    /// What was accepted and not acknowledged is offered again by this route.
    #[wasm_bindgen(js_name = offerAgain)]
    pub fn offer_again(&self, number: f64) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            if let Some(number) = number.to_u64() {
                member.broker.offer_again(number).await?;
            }
            Ok(JsValue::UNDEFINED)
        })
    }

    /// The names of the services that can be targets here.
    pub fn targets(&self) -> Vec<String> {
        self.member.broker.targets().iter().map(|name| name.to_string()).collect()
    }

    /// Whether something waits that a route of this context could hand over, now or after a failure.
    #[wasm_bindgen(js_name = isTransmittable)]
    pub fn is_transmittable(&self) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move { Ok(member.broker.is_transmittable().await?.into()) })
    }

    /// One full attempt to transmit what waits.
    pub fn transmit(&self) -> Promise {
        let member = Rc::clone(&self.member);
        promise(async move {
            let Transmitted { sent, remaining } = member.broker.transmit().await?;
            Ok(Value::object(vec![("sent", value(sent)), ("remaining", value(remaining))]).0)
        })
    }
}
