"""The shop that the order desk and the ticket desk work for: its tables and what stands in them at first."""
