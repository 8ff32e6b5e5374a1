"""The audit log: what was decided and how it ended, in files that show when somebody tampered with them."""

from worker.audit.log import AuditLog, AuditUnavailable
from worker.audit.records import AuditMark, FileChange
from worker.audit.verify import Problem, verify

__all__ = ["AuditLog", "AuditMark", "AuditUnavailable", "FileChange", "Problem", "verify"]
