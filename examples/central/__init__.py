"""Classical private fits of records in one place: what the models of Agewise are compared by."""
