/** What can go wrong. The text of each error names the thing and says what to do. */
export type BrokerErrorCode =
  | "InvalidArgument" | "AlreadyExists" | "DefinitionConflict" | "InUse"
  | "QueueNotFound" | "ServiceNotFound" | "ContractNotFound" | "MessageTypeNotFound" | "ConversationNotFound" | "GroupNotFound" | "GroupInvalid" | "GroupLocked"
  | "InvalidState" | "NotInContract" | "WrongDirection" | "ValidationFailed" | "NotCloneable" | "MessageTooLarge"
  | "QueueDisabled" | "InvalidLifetime" | "TimerBeyondLifetime" | "InvalidEndError" | "Timeout" | "RemoteError" | "Conflict"
  | "TransactionClosed" | "UnsupportedTransactionMode" | "DelayedStoreFailed" | "NotSupported"
  | "QuotaExceeded" | "StorageUnavailable" | "StorageLost" | "StorageCorrupt" | "UpgradeBlocked" | "VersionTooNew" | "LoadFailed" | "Closed" | "Terminated";
